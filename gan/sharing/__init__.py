"""Export of generators: as an ONNX file, or as a self-contained web page."""
