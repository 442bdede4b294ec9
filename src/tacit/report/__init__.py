"""Results as a person reads them: tables and plots."""
