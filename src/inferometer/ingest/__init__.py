"""Foreign, hostile formats -> specs: Hugging Face configs and their quantisation."""
