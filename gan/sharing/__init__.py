"""Generators for others: ONNX, the layout of the Hugging Face hub, a web page that draws by itself."""
