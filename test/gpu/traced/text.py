"""Text that is generated, and speech."""

import torch
import torch.nn.functional as F

from common import R, dev, ids, loop, prog, ragged_mask


def _gpt2(layers=6, width=512, heads=8):
    from transformers import GPT2Config, GPT2LMHeadModel
    cfg = GPT2Config(n_layer=layers, n_embd=width, n_head=heads, n_positions=1024)
    return GPT2LMHeadModel(cfg)


@prog
def gpt2_greedy():
    m = _gpt2().to(dev).eval()
    for _ in loop(7):
        b, l = R.choice([1, 2, 4, 8]), R.randint(16, 500)
        x = ids(b, l, 50257)
        m.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=R.randint(16, 48),
                   do_sample=False, pad_token_id=50256)


@prog
def gpt2_sample():
    m = _gpt2(8, 768, 12).to(dev).half().eval()
    for _ in loop(8):
        b, l = R.randint(1, 12), R.randint(8, 300)
        x = ids(b, l, 50257)
        m.generate(x, attention_mask=ragged_mask(b, l, left=True), max_new_tokens=R.randint(8, 40),
                   do_sample=True, top_k=50, top_p=0.95, temperature=0.9, pad_token_id=50256)


@prog
def gpt2_beam():
    m = _gpt2(4, 512, 8).to(dev).eval()
    for _ in loop(5):
        b, l = R.randint(1, 6), R.randint(20, 250)
        x = ids(b, l, 50257)
        m.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=R.randint(12, 32),
                   do_sample=False, num_beams=4, pad_token_id=50256)


def _llama(layers, width, inter, heads, kv, vocab=32000):
    from transformers import LlamaConfig, LlamaForCausalLM
    cfg = LlamaConfig(vocab_size=vocab, hidden_size=width, intermediate_size=inter,
                      num_hidden_layers=layers, num_attention_heads=heads,
                      num_key_value_heads=kv, max_position_embeddings=4096)
    return LlamaForCausalLM(cfg)


@prog
def llama_generate():
    m = _llama(6, 1024, 2816, 16, 4).to(dev).to(torch.bfloat16).eval()
    for _ in loop(6):
        b, l = R.choice([1, 3, 8, 16, 24]), R.randint(30, 1500)
        x = ids(b, l, 32000)
        m.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=R.randint(10, 40),
                   do_sample=False, pad_token_id=0)


@prog
def t5_generate():
    from transformers import T5Config, T5ForConditionalGeneration
    cfg = T5Config(vocab_size=32128, d_model=512, d_kv=64, d_ff=1024, num_layers=6, num_heads=8,
                   decoder_start_token_id=0)
    m = T5ForConditionalGeneration(cfg).to(dev).eval()
    for _ in loop(6):
        b, l = R.randint(1, 16), R.randint(20, 512)
        x = ids(b, l, 32100)
        m.generate(input_ids=x, attention_mask=ragged_mask(b, l), max_new_tokens=R.randint(10, 32),
                   do_sample=False, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)


@prog
def whisper_generate():
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    from transformers.modeling_outputs import BaseModelOutput
    cfg = WhisperConfig(vocab_size=51865, d_model=512, encoder_layers=6, decoder_layers=6,
                        encoder_attention_heads=8, decoder_attention_heads=8,
                        encoder_ffn_dim=2048, decoder_ffn_dim=2048)
    m = WhisperForConditionalGeneration(cfg).to(dev).eval()

    def by_hand(feats, n):
        enc = BaseModelOutput(last_hidden_state=m.get_encoder()(feats)[0])
        tok = torch.full((feats.shape[0], 1), cfg.decoder_start_token_id, device=dev)
        past = None
        for _ in range(n):
            out = m(encoder_outputs=enc, decoder_input_ids=tok, past_key_values=past, use_cache=True)
            past = out.past_key_values
            tok = out.logits[:, -1:].argmax(-1)

    use_gen = True
    with torch.no_grad():
        for _ in loop(6):
            b, n = R.choice([1, 2, 4, 8]), R.randint(10, 36)
            feats = torch.randn(b, 80, 3000).to(dev)
            if use_gen:
                try:
                    m.generate(feats, max_new_tokens=n, do_sample=False)
                    continue
                except Exception as e:
                    print("whisper generate:", repr(e)[:200])
                    use_gen = False
            by_hand(feats, n)


@prog
def vits_tts():
    from transformers import VitsConfig, VitsModel

    def make(stochastic):
        c = VitsConfig(vocab_size=64, use_stochastic_duration_prediction=stochastic)
        mm = VitsModel(c).to(dev).eval()
        mm.speaking_rate = 0.5
        return mm

    m = make(True)
    with torch.no_grad():
        for _ in loop(14):
            b, l = R.choice([1, 1, 2, 4]), R.randint(10, 160)
            x = ids(b, l, 64)
            mask = ragged_mask(b, l)
            try:
                w = m(input_ids=x, attention_mask=mask).waveform
            except RuntimeError as e:
                print("vits:", repr(e)[:200])
                m = make(False)
                w = m(input_ids=x, attention_mask=mask).waveform
            w.float().cpu()


@prog
def chat_server():
    """Hand-made decoder; each request has its own key/value tensors grown by torch.cat."""
    L, d, h, V = 4, 768, 12, 32000
    dt = torch.bfloat16
    W = [[torch.randn(a, b, device=dev, dtype=dt) * 0.02
          for a, b in ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d))] for _ in range(L)]
    emb = torch.randn(V, d, device=dev, dtype=dt) * 0.02

    def run(r, tok):
        x = F.embedding(tok, emb)[None]
        for i, (wq, wo, w1, w2) in enumerate(W):
            y = F.layer_norm(x, (d,))
            q, k, v = (y @ wq).view(1, -1, 3, h, d // h).permute(2, 0, 3, 1, 4)
            first = r["kv"][i] is None
            if not first:
                k = torch.cat([r["kv"][i][0], k], 2)
                v = torch.cat([r["kv"][i][1], v], 2)
            r["kv"][i] = (k.contiguous(), v.contiguous())
            a = F.scaled_dot_product_attention(q, k, v, is_causal=first)
            x = x + a.transpose(1, 2).reshape(1, -1, d) @ wo
            x = x + F.gelu(F.layer_norm(x, (d,)) @ w1) @ w2
        p = torch.softmax((x[0, -1:] @ emb.t()).float(), -1)
        return torch.multinomial(p, 1)[0]

    active = []
    with torch.no_grad():
        for _ in loop(90):
            if len(active) < 8 and R.random() < 0.35:
                r = {"kv": [None] * L, "left": R.randint(4, 60)}
                r["tok"] = run(r, torch.randint(0, V, (R.randint(20, 2500),)).to(dev))
                active.append(r)
            for r in active:
                r["tok"] = run(r, r["tok"])
                r["left"] -= 1
            active = [r for r in active if r["left"] > 0]
