"""NEAR AI Cloud: evidence of gateway, model and GPUs, signatures of answers, encryption."""
