"""Tiny MarianMT models with real sentencepiece tokenizers, trained in seconds to translate a language of a few words.

Their translation of a text is known: every word becomes the next word of the list.
"""

import io
import json
from pathlib import Path

import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel

from selfsent.encoder.assemble import quietly

WORDS = ["apple", "bread", "chair", "dance", "eagle", "fruit", "grape", "house", "island", "juice", "kettle", "lemon"]
LONGEST = 8  # words of a text that the models learn
PAD, FIRST = len(WORDS) + 2, 2  # token numbers: </s>, <unk>, the words, <pad>


def text(number: int) -> str:
    """Make a text of 4 to 8 words that no other number below 12 ** 4 gives."""
    digits = [number // len(WORDS) ** place % len(WORDS) for place in range(4)]
    more = [(digits[0] + 5 * place) % len(WORDS) for place in range(number % 5)]
    return " ".join(WORDS[digit] for digit in digits + more)


def translated(line: str, times: int = 1) -> str:
    """Translate as the models should."""
    return " ".join(WORDS[(WORDS.index(word) + times) % len(WORDS)] for word in line.split())


def sentencepiece_model() -> bytes:
    """Train a real sentencepiece model whose pieces are the words."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text(37 * n) for n in range(500)),
        model_writer=model,
        vocab_size=len(WORDS) + 3,
        model_type="word",
        minloglevel=2,
        num_threads=1,
    )
    return model.getvalue()


def train(steps: int = 200) -> MarianMTModel:
    """Train a model to write the next word of the list for each word."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = MarianConfig(
            vocab_size=PAD + 1,
            max_position_embeddings=32,
            d_model=64,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            dropout=0.0,
            scale_embedding=True,
            init_std=0.1,
            pad_token_id=PAD,
            eos_token_id=0,
            decoder_start_token_id=PAD,
            forced_eos_token_id=0,
        )
        model = MarianMTModel(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
        for _ in range(steps):
            lengths = torch.randint(1, LONGEST + 1, (128, 1))
            places = torch.arange(LONGEST + 1)
            words = torch.randint(len(WORDS), (128, LONGEST + 1))
            source = torch.where(places < lengths, words + FIRST, torch.where(places == lengths, 0, PAD))
            target = torch.where(places < lengths, (words + 1) % len(WORDS) + FIRST, source)
            labels = target.masked_fill(target == PAD, -100)
            loss = model(input_ids=source, attention_mask=(source != PAD).long(), labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    model.eval().generation_config.update(num_beams=2, max_length=32)
    return model


def write(
    folder: Path, model: MarianMTModel, source: str | None, target: str | None, codes: tuple[str, ...] = ()
) -> Path:
    """Write a translator, laid out as OPUS-MT's are."""
    folder.mkdir(parents=True)
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(sentencepiece_model())
    # The codes of languages stand where they do not move the words; a model that has any is trained for none.
    tokens = ["</s>", "<unk>", *(f"▁{word}" for word in WORDS), "<pad>"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    vocabulary |= {f">>{code}<<": 1 for code in codes}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    settings = {"tokenizer_class": "MarianTokenizer", "model_max_length": 512}
    languages = {"source_lang": source, "target_lang": target}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | languages), encoding="utf-8")
    with quietly():
        model.save_pretrained(folder)
    return folder
