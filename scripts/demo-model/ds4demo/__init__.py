"""A small DeepSeek V4 model, trained from scratch: data, training, export, evaluation."""
