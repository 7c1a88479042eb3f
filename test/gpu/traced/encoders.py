"""Transformers that encode, and that are trained."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, ids, loop, prog, ragged_mask, step
from text import _gpt2, _llama


@prog
def bert_server():
    from transformers import BertConfig, BertModel
    m = BertModel(BertConfig(num_hidden_layers=12)).to(dev).half().eval()
    with torch.no_grad():
        for _ in loop(110):
            b, l = R.choice([1, 1, 2, 4, 8, 16, 32, 64]), int(8 * 2 ** (R.random() * 6))
            mask = ragged_mask(b, l)
            o = m(input_ids=ids(b, l, 30522), attention_mask=mask).last_hidden_state
            e = (o * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            F.normalize(e.float(), dim=-1).cpu()


@prog
def bert_finetune():
    from transformers import BertConfig, BertForSequenceClassification
    m = BertForSequenceClassification(BertConfig(num_hidden_layers=8, num_labels=3)).to(dev).train()
    opt = torch.optim.AdamW(m.parameters(), lr=2e-5)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: max(0.0, 1 - s / 100))
    for _ in loop(30):
        b, l = 16, R.randint(24, 256)
        loss = m(input_ids=ids(b, l, 30522), attention_mask=ragged_mask(b, l),
                 labels=torch.randint(0, 3, (b,)).to(dev)).loss
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        sched.step()


@prog
def vit_infer():
    from transformers import ViTConfig, ViTModel
    m = ViTModel(ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536)).to(dev).half().eval()
    with torch.no_grad():
        for _ in loop(100):
            b = R.choice([1, 2, 3, 5, 8, 16, 40, 64, 128])
            x = torch.randint(0, 256, (b, 3, 224, 224), dtype=torch.uint8).to(dev)
            x = (x.half() / 255 - 0.5) / 0.5
            m(pixel_values=x).last_hidden_state[:, 0].cpu()


@prog
def vit_train():
    from transformers import ViTConfig, ViTForImageClassification
    m = ViTForImageClassification(ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536,
                                            num_hidden_layers=8, num_labels=100)).to(dev).train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4, weight_decay=0.05)
    for i in loop(30):
        b = 64 if i % 8 != 7 else 37
        x = torch.randn(b, 3, 224, 224, device=dev)
        lam = R.random()
        perm = torch.randperm(b, device=dev)
        x = lam * x + (1 - lam) * x[perm]
        y = torch.randint(0, 100, (b,), device=dev)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            o = m(pixel_values=x).logits
            loss = lam * F.cross_entropy(o, y) + (1 - lam) * F.cross_entropy(o, y[perm])
        step(opt, loss)


@prog
def swin_train():
    from torchvision.models import swin_t
    m = swin_t(weights=None, num_classes=200).to(dev).train()
    opt = torch.optim.SGD(m.parameters(), lr=1e-3, momentum=0.9)
    for _ in loop(14):
        b = R.choice([16, 24, 32])
        x = torch.randn(b, 3, 224, 224, device=dev)
        step(opt, F.cross_entropy(m(x), torch.randint(0, 200, (b,), device=dev)))


@prog
def nmt_train():
    """nn.Transformer with batches of about equal token count and different lengths."""
    V = 24000
    es, et = nn.Embedding(V, 512).to(dev), nn.Embedding(V, 512).to(dev)
    tr = nn.Transformer(512, 8, 4, 4, 2048, 0.1, batch_first=True).to(dev).train()
    out = nn.Linear(512, V).to(dev)
    ps = [p for mm in (es, et, tr, out) for p in mm.parameters()]
    opt = torch.optim.Adam(ps, lr=1e-4)
    for _ in loop(22):
        ls = R.randint(8, 140)
        lt = max(4, int(ls * R.uniform(0.7, 1.4)))
        b = max(1, 3500 // max(ls, lt))
        s, t = ids(b, ls, V), ids(b, lt + 1, V)
        pad = ragged_mask(b, ls) == 0
        cm = torch.triu(torch.ones(lt, lt, device=dev, dtype=torch.bool), 1)
        o = tr(es(s), et(t[:, :-1]), tgt_mask=cm, src_key_padding_mask=pad, memory_key_padding_mask=pad)
        loss = F.cross_entropy(out(o).reshape(-1, V), t[:, 1:].reshape(-1), label_smoothing=0.1)
        step(opt, loss)


@prog
def ckpt_transformer():
    from torch.utils.checkpoint import checkpoint
    ls = nn.ModuleList([nn.TransformerEncoderLayer(768, 12, 3072, 0.1, batch_first=True, norm_first=True)
                        for _ in range(10)]).to(dev).train()
    head = nn.Linear(768, 8000).to(dev)
    emb = nn.Embedding(8000, 768).to(dev)
    opt = torch.optim.AdamW([p for m in (ls, head, emb) for p in m.parameters()], lr=1e-4)
    for _ in loop(14):
        b, l = R.choice([4, 8, 12]), R.choice([256, 384, 512, 768, 1024])
        t = ids(b, l, 8000)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x = emb(t)
            for m in ls:
                x = checkpoint(m, x, use_reentrant=False)
            loss = F.cross_entropy(head(x).float().view(-1, 8000), t.view(-1))
        step(opt, loss)


@prog
def grad_accum_lm():
    m = _gpt2(8, 768, 12).to(dev).train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
    for _ in loop(5):
        opt.zero_grad(set_to_none=True)
        for _k in loop(4):
            x = ids(8, R.choice([256, 384, 512]), 50257)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = m(input_ids=x, labels=x).loss / 4
            loss.backward()
        opt.step()
        # short validation with nothing kept
        m.eval()
        with torch.no_grad():
            x = ids(4, R.randint(100, 700), 50257)
            m(input_ids=x, labels=x).loss.item()
        m.train()


@prog
def lora_finetune():
    class LoRA(nn.Module):
        def __init__(self, base, r=16):
            super().__init__()
            self.base = base
            self.a = nn.Parameter(torch.randn(r, base.in_features) * 0.01)
            self.b = nn.Parameter(torch.zeros(base.out_features, r))

        def forward(self, x):
            d = F.linear(F.linear(F.dropout(x.float(), 0.05, self.training), self.a), self.b)
            return self.base(x) + d.to(x.dtype) * 2.0

    m = _llama(8, 1024, 2816, 16, 8).to(torch.bfloat16)
    for p in m.parameters():
        p.requires_grad_(False)
    for lay in m.model.layers:
        lay.self_attn.q_proj = LoRA(lay.self_attn.q_proj)
        lay.self_attn.v_proj = LoRA(lay.self_attn.v_proj)
    m = m.to(dev).train()
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-3)
    for _ in loop(18):
        b, l = R.choice([2, 4, 8]), R.randint(60, 600)
        x = ids(b, l, 32000)
        step(opt, m(input_ids=x, attention_mask=ragged_mask(b, l), labels=x).loss)


@prog
def wav2vec2_train():
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification
    cfg = Wav2Vec2Config(hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048,
                         num_labels=10, apply_spec_augment=False)
    m = Wav2Vec2ForSequenceClassification(cfg).to(dev).train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-5)
    for i in loop(18):
        b, n = R.choice([2, 4, 6]), int(16000 * R.uniform(0.8, 6))
        x = torch.randn(b, n).to(dev)
        y = torch.randint(0, 10, (b,)).to(dev)
        if i % 4 == 3:
            m.eval()
            with torch.no_grad():
                m(input_values=x).logits.argmax(-1).cpu()
            m.train()
        else:
            step(opt, m(input_values=x, labels=y).loss)


@prog
def clip_train():
    from transformers import CLIPConfig, CLIPModel
    cfg = CLIPConfig(
        text_config=dict(vocab_size=10000, hidden_size=256, intermediate_size=1024, num_hidden_layers=4,
                         num_attention_heads=4, max_position_embeddings=77),
        vision_config=dict(hidden_size=384, intermediate_size=1536, num_hidden_layers=6,
                           num_attention_heads=6, image_size=224, patch_size=16),
        projection_dim=256)
    m = CLIPModel(cfg).to(dev).train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
    for _ in loop(18):
        b, l = R.choice([48, 64, 96, 128]), R.randint(8, 77)
        step(opt, m(input_ids=ids(b, l, 10000), pixel_values=torch.randn(b, 3, 224, 224, device=dev),
                    attention_mask=ragged_mask(b, l), return_loss=True).loss)


@prog
def moe_train():
    d, E, ff = 512, 12, 1536

    class MoE(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(d)
            self.gate = nn.Linear(d, E)
            self.ex = nn.ModuleList([nn.Sequential(nn.Linear(d, ff), nn.SiLU(), nn.Linear(ff, d))
                                     for _ in range(E)])

        def forward(self, x):
            y = self.norm(x)
            w, idx = torch.topk(torch.softmax(self.gate(y), -1), 2, -1)
            out = torch.zeros_like(x)
            for e, f in enumerate(self.ex):
                tok, k = torch.where(idx == e)
                if tok.numel():
                    out = out.index_add(0, tok, f(y[tok]) * w[tok, k, None])
            return x + out

    m = nn.Sequential(*[MoE() for _ in range(4)], nn.Linear(d, 1000)).to(dev)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
    for _ in loop(16):
        n = R.randint(1000, 9000)
        x = torch.randn(n, d, device=dev) + torch.randn(1, d, device=dev)
        step(opt, F.cross_entropy(m(x), torch.randint(0, 1000, (n,), device=dev)))
