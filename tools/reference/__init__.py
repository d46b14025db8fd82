"""How the recorded cases are computed: the model and its inputs, its outputs, and comparing two recordings."""
