"""Config keys that say nothing about shapes, and model types that are refused by name."""

from collections.abc import Mapping

from inferometer.errors import InferometerError, unknown_name
from inferometer.ingest.read_json import show

IRRELEVANT = frozenset(
    """
    architectures auto_map model_type transformers_version transformers.js_config is_llama_config
    hidden_act hidden_activation rms_norm_eps initializer_range use_cache pretraining_tp
    output_attentions output_hidden_states output_router_logits output_scores return_dict return_dict_in_generate
    use_return_dict torchscript is_decoder is_encoder_decoder add_cross_attention cross_attention_hidden_size
    tie_encoder_decoder chunk_size_feed_forward pruned_heads problem_type finetuning_task id2label label2id
    tokenizer_class prefix task_specific_params use_bfloat16 tf_legacy_loss attn_implementation
    bad_words_ids begin_suppress_tokens suppress_tokens do_sample early_stopping length_penalty max_length min_length
    no_repeat_ngram_size encoder_no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
    remove_invalid_values repetition_penalty diversity_penalty exponential_decay_length_penalty
    temperature top_k top_p typical_p
    routed_scaling_factor scoring_func norm_topk_prob seq_aux aux_loss_alpha ep_size router_jitter_noise
    prefill_chunk_size unsloth_version unsloth_fixed original_max_position_embeddings
    partial_rotary_factor hidden_activation activation_function layer_norm_eps layer_norm_epsilon norm_epsilon norm_eps
    layernorm_epsilon attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar cache_implementation
    rotary_pct rotary_emb_base rotary_dim model_max_length attention_softmax_in_fp32 scale_attention_softmax_in_fp32
    scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn runner_max_sequence_length summary_type
    summary_activation summary_first_dropout summary_proj_to_labels summary_use_proj bf16 fp16 fp32 tokenizer_type
    slow_but_exact masked_softmax_fusion bias_dropout_fusion offset_alibi attention_softmax_in_fp32 unk_token_id
    attn_dropout_prob emb_dropout_prob embedding_dropout residual_dropout
    """.split()  # noqa: SIM905  # seventy names read better as prose
)
"""Initialisation, activation names, training losses, generation defaults, positions, tooling marks."""

_PREFIXES = ("rope_", "_")
_SUFFIXES = ("_token_id", "_token_ids", "_dropout", "_loss_coef", "_pdrop")

_NOT_DECODER_ONLY = {
    "an encoder": """albert bert big_bird camembert convbert data2vec-text deberta deberta-v2 distilbert electra
        ernie flaubert jina_bert longformer mobilebert modernbert mpnet new nomic_bert roberta roformer
        squeezebert xlm xlm-roberta xlm-roberta-xl xlnet""",
    "an encoder-decoder": """bart bigbird_pegasus blenderbot encoder-decoder fsmt led longt5 m2m_100 marian mbart
        mt5 mvp nllb-moe pegasus pegasus_x prophetnet switch_transformers t5 t5gemma udop umt5""",
    "a vision model": """align beit blip blip-2 chinese_clip clip clip_text_model clip_vision_model clipseg convnext
        convnextv2 deit depth_anything detr dinov2 dinov3_vit dpt efficientnet groupvit mobilevit mobilenet_v2 owlvit
        regnet resnet rt_detr sam sam2 segformer siglip siglip2 siglip_vision_model swin swinv2 timm_wrapper vit
        vit_mae vivit yolos""",
    "a speech model": """bark clap encodec hubert mctct moonshine musicgen seamless_m4t sew speech_to_text speecht5
        unispeech vits wav2vec2 wav2vec2-bert wavlm whisper""",
    "a recurrent network without attention": "rwkv rwkv5 rwkv6 rwkv7",
    "a reward model": "gpt_neox_reward_model",
}
REFUSED = {name: what for what, names in _NOT_DECODER_ONLY.items() for name in names.split()}
"""`model_type` -> what it is instead of a decoder-only language model."""

_NOT_MODELLED = {
    "gemma3n": "AltUp streams and LAuReL branches",
    "gemma3n_text": "AltUp streams and LAuReL branches",
}
"""`model_type` -> what its layers have that no block kind stands for yet."""

_OTHER_HEADS = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMaskedLM",
    "RewardModel",
)


def is_irrelevant(key: str) -> bool:
    """Return whether a config key is known to say nothing about shapes.

    >>> is_irrelevant("rope_theta"), is_irrelevant("eos_token_id"), is_irrelevant("hidden_size")
    (True, True, False)
    """
    return key in IRRELEVANT or key.startswith(_PREFIXES) or key.endswith(_SUFFIXES)


def check_not_native(config: Mapping[str, object], where: str) -> None:
    """Refuse a checkpoint's native parameters, which name sizes as the training code does."""
    if "hidden_size" not in config and {"dim", "n_layers"} <= set(config):
        raise InferometerError(f"{where}: native parameters (dim, n_layers), not a Hugging Face config.json")


def check_model_type(
    model_type: object, architectures: tuple[str, ...], where: str, understood: tuple[str, ...]
) -> str:
    """Return `model_type` if it is one of the families `understood`.

    Raises InferometerError for one that is missing, no string, or no decoder-only language model, and
    UnknownNameError for any other.
    """
    if not isinstance(model_type, str):
        raise InferometerError(f"{where}: model_type is {show(model_type)}; allowed: {', '.join(sorted(understood))}")
    what = REFUSED.get(model_type, "a reward model" if model_type.endswith("_reward_model") else None)
    if what is not None:
        raise InferometerError(f"{where}: model_type {model_type!r} is {what}, not a decoder-only language model")
    if model_type in _NOT_MODELLED:
        raise InferometerError(f"{where}: {_NOT_MODELLED[model_type]} of model_type {model_type!r} are not modelled")
    if model_type not in understood:
        raise unknown_name("model_type", model_type[:80], understood)
    for name in architectures:
        if name.endswith(_OTHER_HEADS):
            raise InferometerError(
                f"{where}: architecture {show(name)} has no language-model head: not a decoder-only language model"
            )
    return model_type
