"""Encoders that people report through: nobody is trusted, each person reports once (S4).

``networks``          layers as plain arrays, and a design: encoder, mechanism, decoder
``domain``            what rows may hold, declared
``mechanism_choice``  which local mechanism a budget buys
``reports``           one noisy report a user, charged to the user's account, and what it promises
``device``            what is handed to people; ``encode`` is the script that runs there
``base``              what every encoder does once it is fitted
``linear_encoder``    for y = Kx: ``closed_forms``, ``designs``, ``design_search``, ``hull``
``neural``            any differentiable task, by PyTorch
"""
