"""Training by gradient descent: models, data, methods, histories and checkpoints."""
