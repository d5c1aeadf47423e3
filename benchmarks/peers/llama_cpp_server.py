"""llama.cpp's own server on the weights of an exported model; ``llama_cpp_server.py FOLDER MODEL THREADS`` says where.

Started by benchmarks/serving.py with the interpreter of an environment that has `xllamacpp` (llama.cpp with its server)
and `gguf` (llama.cpp's file format), which bring no torch: it imports nothing of this project. It writes the weights
to a GGUF file in fp32, with a vocabulary of bytes, which is the one of the benchmark's model.
"""

import json
import sys
import tempfile
import threading
from pathlib import Path

import gguf  # type: ignore[import-not-found]
import numpy as np
import xllamacpp  # type: ignore[import-not-found]

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ANSWERS = 16
"""At a time, as ours."""


def tensors(folder: Path) -> dict[str, np.ndarray]:
    """The weights of a safetensors file in fp32 (https://github.com/huggingface/safetensors#format)."""
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            assert entry["dtype"] == "F32", entry
            first, last = (8 + size + offset for offset in entry["data_offsets"])
            arrays[name] = np.frombuffer(data[first:last], np.float32).reshape(entry["shape"])
    return arrays


def renamed(name: str) -> str:
    """A tensor's name in GGUF."""
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[part]}.weight"
    return f"{NAMES[stem]}.weight"


def permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """Query and key projections with the halves of each head interleaved, as llama.cpp rotates positions."""
    rows, width = weights.shape
    return weights.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def write(folder: Path, path: Path) -> int:
    """Write the model as GGUF; returns the tokens that it reads."""
    config = json.loads((folder / "config.json").read_bytes())
    assert config["model_type"] == "llama", config["model_type"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_dimension_count(config["hidden_size"] // heads)
    out.add_rope_freq_base((config.get("rope_parameters") or config)["rope_theta"])
    vocabulary = json.loads((folder / "tokenizer.json").read_bytes())
    ids = vocabulary["model"]["vocab"] | {token["content"]: token["id"] for token in vocabulary["added_tokens"]}
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(sorted(ids, key=lambda token: ids[token]))
    special = {token["id"] for token in vocabulary["added_tokens"]}
    out.add_token_types([3 if token in special else 1 for token in range(len(ids))])
    out.add_token_merges(["Ā Ā"])  # of two zero bytes, which no prompt has: without any, the file is refused
    out.add_eos_token_id(max(special))
    out.add_bos_token_id(max(special))
    out.add_add_bos_token(False)
    for name, weights in tensors(folder).items():
        turned = {"q_proj": heads, "k_proj": kv_heads}.get(name.split(".")[-2])
        out.add_tensor(renamed(name), np.ascontiguousarray(permuted(weights, turned)) if turned else weights)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return int(config["max_position_embeddings"])


def serve(folder: Path, model: str, threads: int) -> None:
    """Serve for ever; prints where."""
    with tempfile.TemporaryDirectory() as folder_of_model:
        path = Path(folder_of_model) / "model.gguf"
        length = write(folder, path)
        settings = xllamacpp.CommonParams()
        settings.model.path, settings.model_alias = str(path), model
        settings.n_parallel, settings.n_ctx, settings.port = ANSWERS, ANSWERS * length, 0
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
        settings.cache_prompt, settings.warmup, settings.n_gpu_layers = False, True, 0
        server = xllamacpp.Server(settings)
        print(json.dumps({"url": server.listening_address}), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
