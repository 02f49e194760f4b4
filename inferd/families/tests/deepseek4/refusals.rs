//! Files that are not this architecture, or not consistently so: each refused with the key or tensor and what is wrong.

use crate::kit;
use ds4_families::deepseek4::{self, Shape, ShapeName};
use ds4_gguf::writer::Writer;
use ds4_gguf::{Array, Model, Value};
use ds4_import::ComputeDevice;
use ds4_model::{BindOptions, KvRounding};
use ds4_units::{TensorType, Tokens};

/// A real file's metadata, with changes: a value replaces a key's, nothing removes it.
fn metadata(changes: &[(&str, Option<Value>)]) -> Writer {
    let path = kit::oracle("flash-micro").expect("a tracked fixture").with_extension("gguf");
    let original = Model::open(&path).expect("fixture opens");
    let kept = original.metadata().iter().filter(|(key, _)| !changes.iter().any(|(changed, _)| changed == key));
    let writer = kept.fold(Writer::new("deepseek4"), |writer, (key, value)| writer.value(key, value.clone()));
    changes.iter().fold(writer, |writer, (key, value)| match value {
        Some(value) => writer.value(key, value.clone()),
        None => writer,
    })
}

/// The same with the file's tensors, as `edit` leaves them; `None` drops a tensor. Their bytes are zeros.
fn with_tensors(writer: Writer, edit: impl Fn(&str, TensorType, Vec<u64>) -> Option<(TensorType, Vec<u64>)>) -> Writer {
    let path = kit::oracle("flash-micro").expect("a tracked fixture").with_extension("gguf");
    let original = Model::open(&path).expect("fixture opens");
    original.tensors().iter().fold(writer, |writer, tensor| {
        match edit(&tensor.name, tensor.kind, tensor.dims.clone()) {
            Some((kind, dims)) => {
                let len = kind.byte_len(dims.iter().product()).expect("whole blocks").index();
                writer.tensor(&tensor.name, kind, &dims, vec![0; len])
            }
            None => writer,
        }
    })
}

fn open(writer: &Writer) -> Model {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    writer.write(&path).expect("a small file");
    Model::open(&path).expect("a well-formed file")
}

fn refusal(writer: &Writer) -> String {
    deepseek4::validate(&open(writer)).expect_err("the file is wrong").to_string()
}

#[test]
fn every_wrong_key_is_refused_by_name() {
    let ratios = |ratios: &[u32]| Some(Value::Array(Array::U32(ratios.to_vec())));
    let cases: &[(&str, Option<Value>, &str)] = &[
        ("block_count", None, "is missing"),
        ("block_count", Some(Value::U32(0)), "is 0; it must be 1 to 1024"),
        ("block_count", Some(Value::String("six".into())), "string"),
        ("vocab_size", Some(Value::U32(511)), "511 does not match the file's 512 tokens"),
        ("attention.head_count_kv", Some(Value::U32(2)), "is 2; it must be 1"),
        ("attention.value_length", Some(Value::U32(64)), "is 64; it must be 128"),
        ("attention.key_length", Some(Value::U32(100)), "is 100; it must be 128 to 4096"),
        ("attention.output_group_count", Some(Value::U32(3)), "4 heads cannot form 3 equal groups"),
        ("attention.sliding_window", Some(Value::U32(256)), "is 256; it must be 128"),
        ("attention.indexer.key_length", Some(Value::U32(64)), "is 64; it must be 128"),
        ("attention.indexer.top_k", Some(Value::U32(0)), "is 0; it must be 1 to"),
        ("rope.dimension_count", Some(Value::U32(32)), "is 32; it must be 64"),
        ("expert_used_count", Some(Value::U32(4)), "is 4; it must be 6"),
        ("expert_count", Some(Value::U32(5)), "is 5; it must be 6 to"),
        ("expert_shared_count", Some(Value::U32(2)), "is 2; it must be 1"),
        ("expert_group_count", Some(Value::U32(4)), "is 4; it must be 0"),
        ("expert_weights_norm", Some(Value::Bool(false)), "must be true"),
        ("hyper_connection.count", Some(Value::U32(2)), "is 2; it must be 4"),
        ("hash_layer_count", Some(Value::U32(7)), "is 7; it must be 0 to 6"),
        ("rope.freq_base", Some(Value::F32(f32::NAN)), "is not a positive number"),
        ("expert_weights_scale", Some(Value::F32(-1.0)), "is not a positive number"),
        ("attention.compress_ratios", ratios(&[0, 4]), "has 2 entries; 6 layers need one each"),
        ("attention.compress_ratios", ratios(&[0, 0, 4, 8, 4, 128]), "layer 3 has ratio 8; known are 0, 4 and 128"),
        ("swiglu_clamp_exp", Some(Value::Array(Array::F32(vec![0.0; 6]))), "layer 0 has 0; a positive number"),
    ];
    for (key, value, problem) in cases {
        let key = format!("deepseek4.{key}");
        let message = refusal(&metadata(&[(&key, value.clone())]));
        assert!(message.starts_with(&format!("metadata key {key}: ")), "{message}");
        assert!(message.contains(problem), "{message:?} does not say {problem:?}");
    }
}

#[test]
fn every_wrong_tensor_is_refused_by_name() {
    let drop = with_tensors(metadata(&[]), |name, kind, dims| (name != "blk.2.attn_kv.weight").then_some((kind, dims)));
    assert_eq!(refusal(&drop), "tensor blk.2.attn_kv.weight: is missing");

    let narrow = with_tensors(metadata(&[]), |name, kind, dims| {
        let dims = if name == "blk.3.attn_sinks.weight" { vec![8] } else { dims };
        Some((kind, dims))
    });
    assert_eq!(refusal(&narrow), "tensor blk.3.attn_sinks.weight: has the dimensions [8]; [4] are expected");

    let integers = with_tensors(metadata(&[]), |name, kind, dims| {
        Some((if name == "output_norm.weight" { TensorType::I32 } else { kind }, dims))
    });
    assert_eq!(refusal(&integers), "tensor output_norm.weight: is stored as I32; supported are F32 F16 BF16");

    let unread = with_tensors(metadata(&[]), |name, kind, dims| {
        Some((if name == "output.weight" { TensorType::Q6_K } else { kind }, dims))
    });
    let message = refusal(&unread);
    assert!(message.contains("tensor output.weight: is stored as Q6_K; supported are F32 F16 BF16 Q8_0"), "{message}");
}

#[test]
fn an_expert_table_that_names_an_unknown_expert_is_refused() {
    let path = kit::oracle("flash-micro").expect("a tracked fixture").with_extension("gguf");
    let original = Model::open(&path).expect("fixture opens");
    let name = "blk.0.ffn_gate_tid2eid.weight";
    let writer = original.tensors().iter().fold(metadata(&[]), |writer, tensor| {
        let mut bytes = original.read_tensor(tensor).expect("fixture reads");
        if tensor.name == name {
            bytes[..4].copy_from_slice(&(-1i32).to_le_bytes());
        }
        writer.tensor(&tensor.name, tensor.kind, &tensor.dims, bytes)
    });
    let file = open(&writer);
    let weights = kit::read_weights(&file);
    let options = BindOptions { context: Tokens(100), kv_rounding: KvRounding::Exact, device: ComputeDevice::Cpu };
    let Err(error) = deepseek4::bind_model(&file, &weights, None, &options) else { panic!("the table is wrong") };
    assert_eq!(error.to_string(), format!("tensor {name}: names expert -1; there are 8"));
}

#[test]
fn the_published_shapes_are_recognised_and_anything_else_is_custom() {
    let shape = |changes: &[(&str, Value)]| {
        let changes: Vec<(String, Option<Value>)> =
            changes.iter().map(|(key, value)| (format!("deepseek4.{key}"), Some(value.clone()))).collect();
        let mut changes: Vec<(&str, Option<Value>)> =
            changes.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        changes.push(("tokenizer.ggml.tokens", None));
        Shape::read(open(&metadata(&changes)).metadata()).expect("a consistent shape").name()
    };
    let published = |layers: u32, first: u32, sizes: [u32; 9]| {
        let [hidden, heads, query, groups, experts, width, top, index_heads, rank] = sizes;
        let ratios = (0..layers).map(|layer| if layer < 2 { first } else { 4 + 124 * (layer % 2) }).collect();
        vec![
            ("block_count", Value::U32(layers)),
            ("embedding_length", Value::U32(hidden)),
            ("vocab_size", Value::U32(129_280)),
            ("attention.head_count", Value::U32(heads)),
            ("attention.key_length", Value::U32(512)),
            ("attention.value_length", Value::U32(512)),
            ("attention.q_lora_rank", Value::U32(query)),
            ("attention.output_group_count", Value::U32(groups)),
            ("attention.output_lora_rank", Value::U32(rank)),
            ("expert_count", Value::U32(experts)),
            ("expert_feed_forward_length", Value::U32(width)),
            ("hash_layer_count", Value::U32(3)),
            ("attention.indexer.head_count", Value::U32(index_heads)),
            ("attention.indexer.top_k", Value::U32(top)),
            ("attention.compress_ratios", Value::Array(Array::U32(ratios))),
            ("swiglu_clamp_exp", Value::Array(Array::F32(vec![10.0; layers as usize]))),
        ]
    };
    let flash = published(43, 0, [4096, 64, 1024, 8, 256, 2048, 512, 64, 1024]);
    let pro = published(61, 128, [7168, 128, 1536, 16, 384, 3072, 1024, 64, 1024]);
    assert_eq!(shape(&flash), ShapeName::Flash);
    assert_eq!(shape(&pro), ShapeName::Pro);
    assert_eq!(shape(&published(43, 128, [4096, 64, 1024, 8, 256, 2048, 512, 64, 1024])), ShapeName::Custom);
    assert_eq!(shape(&[]), ShapeName::Custom);
}

#[test]
fn another_architecture_is_refused_with_the_list_of_known_ones() {
    let file = open(&Writer::new("deepseek_v41"));
    let weights = kit::read_weights(&file);
    let options = BindOptions { context: Tokens(100), kv_rounding: KvRounding::Exact, device: ComputeDevice::Cpu };
    let Err(error) = ds4_families::bind(&file, &weights, None, &options) else { panic!("no such family") };
    assert_eq!(error.to_string(), "architecture \"deepseek_v41\" is not supported; this build runs deepseek4");
}

/// What is wrong with a draft block's file for the model of the fixture.
fn draft_refusal(draft: &Writer) -> String {
    let path = kit::oracle("flash-micro").expect("a tracked fixture").with_extension("gguf");
    let file = Model::open(&path).expect("fixture opens");
    let family = ds4_families::find("deepseek4").expect("a family");
    family.validate_draft(&file, &open(draft)).expect_err("another model's draft block").to_string()
}

/// The same metadata under another architecture's name or with changed values, and the tensors of a layer under the draft
/// block's names, as `edit` leaves them.
fn draft(changes: &[(&str, Option<Value>)], edit: impl Fn(&str, &[u64]) -> Option<Vec<u64>>) -> Writer {
    let full: Vec<(String, Option<Value>)> =
        changes.iter().map(|(key, value)| (format!("deepseek4.{key}"), value.clone())).collect();
    let changes: Vec<(&str, Option<Value>)> = full.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
    let path = kit::oracle("flash-micro").expect("a tracked fixture").with_extension("gguf");
    let original = Model::open(&path).expect("fixture opens");
    let tensor = |name: &str| original.tensor(name).expect("a tensor of the fixture");
    let layer = original.tensors().iter().filter(|tensor| tensor.name.starts_with("blk.5."));
    let mut tensors: Vec<(String, TensorType, Vec<u64>)> =
        layer.map(|tensor| (tensor.name.replacen("blk.5.", "mtp.0.", 1), tensor.kind, tensor.dims.clone())).collect();
    let (norm, square) = (tensor("output_norm.weight"), tensor("token_embd.weight").dims[0]);
    for name in ["enorm", "hnorm", "norm"] {
        tensors.push((format!("mtp.0.{name}.weight"), norm.kind, norm.dims.clone()));
    }
    for name in ["e_proj", "h_proj"] {
        tensors.push((format!("mtp.0.{name}.weight"), TensorType::F32, vec![square, square]));
    }
    for part in ["fn", "base", "scale"] {
        let head = tensor(&format!("output_hc_{part}.weight"));
        tensors.push((format!("mtp.0.hc_head_{part}.weight"), head.kind, head.dims.clone()));
    }
    tensors.into_iter().fold(metadata(&changes), |writer, (name, kind, dims)| match edit(&name, &dims) {
        Some(dims) => {
            let len = kind.byte_len(dims.iter().product()).expect("whole blocks").index();
            writer.tensor(&name, kind, &dims, vec![0; len])
        }
        None => writer,
    })
}

#[test]
fn a_draft_block_of_another_model_is_refused_with_both_numbers() {
    let whole = |_: &str, dims: &[u64]| Some(dims.to_vec());
    let family = ds4_families::find("deepseek4").expect("a family");
    let path = kit::oracle("flash-micro").expect("a tracked fixture").with_extension("gguf");
    let file = Model::open(&path).expect("fixture opens");
    family.validate_draft(&file, &open(&draft(&[], whole))).expect("its own draft block");

    let hidden = file.tensor("token_embd.weight").expect("a tensor").dims[0];
    let other = draft_refusal(&draft(&[("embedding_length", Some(Value::U32(9999)))], whole));
    assert_eq!(other, format!("the draft block's deepseek4.embedding_length is 9999; the model's is {hidden}"));
    let other = draft_refusal(&draft(&[("expert_count", Some(Value::U32(77)))], whole));
    assert_eq!(other, "the draft block's deepseek4.expert_count is 77; the model's is 8");
    let other = draft_refusal(&Writer::new("llama"));
    assert_eq!(other, "the draft block's architecture is llama; the model's is deepseek4");

    // A file that says nothing of tokens is believed; one with others is not.
    let missing = draft_refusal(&Writer::new("deepseek4"));
    assert!(missing.contains("tensor mtp.0.hc_attn_fn.weight: is missing"), "{missing}");
    let tokens = vec!["a".to_owned(); 512];
    let named = metadata(&[("tokenizer.ggml.tokens", Some(Value::Array(Array::String(tokens))))]);
    let other = draft_refusal(&named);
    assert!(other.starts_with("the draft block's token 0 is \"a\"; the model's is"), "{other}");
    let few = metadata(&[("tokenizer.ggml.tokens", Some(Value::Array(Array::String(vec!["a".to_owned()]))))]);
    assert_eq!(draft_refusal(&few), "the draft block's vocabulary is 1 tokens; the model's is 512 tokens");

    let without = draft(&[], |name: &str, dims: &[u64]| (name != "mtp.0.enorm.weight").then(|| dims.to_vec()));
    assert_eq!(draft_refusal(&without), "tensor mtp.0.enorm.weight: is missing");
    let wide = draft(&[], |name: &str, dims: &[u64]| match name {
        "mtp.0.h_proj.weight" => Some(vec![dims[0], dims[1] * 2]),
        _ => Some(dims.to_vec()),
    });
    let wrong = draft_refusal(&wide);
    let dims = format!("has the dimensions [{hidden}, {}]; [{hidden}, {hidden}] are expected", 2 * hidden);
    assert_eq!(wrong, format!("tensor mtp.0.h_proj.weight: {dims}"));
    // The model itself is no draft block.
    let error = family.validate_draft(&file, &file).expect_err("a model").to_string();
    assert!(error.contains("mtp.0."), "{error}");
}
