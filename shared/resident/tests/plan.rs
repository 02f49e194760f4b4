//! Plans: for whatever tensors, every byte has one place or one reason not to have any.

mod support;

use ds4_gguf::TensorInfo;
use ds4_resident::{
    ArtifactRequest, Placement, Plan, PlanError, PlanOptions, Residency, Role, SkipRequest, TensorTable, Totals,
    all_split, plan,
};
use ds4_units::{Bytes, FileOffset, TensorType};
use proptest::prelude::*;

/// One tensor of a generated table: its length, whether it shares the bytes of the one before, what is asked for it.
type Wanted = (u64, bool, u8);

fn wanted() -> impl Strategy<Value = Wanted> {
    let len = prop_oneof![
        4 => 1u64..5000,
        2 => (1u64 << 20)..(4 << 20),
        2 => (2u64 << 20)..(300 << 20),
        1 => Just(2 << 20),
        1 => (900u64 << 20)..(3 << 30),
    ];
    (len, prop::bool::weighted(0.1), 0u8..12)
}

fn table(wanted: &[Wanted], shard_every: usize) -> Vec<TensorInfo> {
    let mut tensors: Vec<TensorInfo> = Vec::new();
    for (index, &(len, shares, _)) in wanted.iter().enumerate() {
        let shard = index / shard_every;
        let before = tensors.last().filter(|before| before.shard == shard);
        let next = before.map_or(4096, |before| before.end().0.next_multiple_of(32));
        let (offset, len) = match before {
            Some(before) if shares => (before.offset, before.len.0),
            _ => (FileOffset(next), len),
        };
        let (name, dims) = (format!("t{index}"), vec![len]);
        tensors.push(TensorInfo { name, kind: TensorType::I8, dims, shard, offset, len: Bytes(len) });
    }
    tensors
}

fn options(role: Role, tensors: &[TensorInfo], wanted: &[Wanted], span_mib: u64) -> PlanOptions {
    let mut options = PlanOptions { span: Bytes::mib(span_mib), ..PlanOptions::default() };
    for (tensor, &(.., ask)) in tensors.iter().zip(wanted) {
        let tensor_name = tensor.name.clone();
        match ask {
            0 => options.skip.push(SkipRequest { role, tensor: tensor_name, reason: "unused".into() }),
            1 | 2 => options.artifacts.push(ArtifactRequest {
                role,
                tensor: tensor_name,
                layout: "soa-v1".into(),
                len: Bytes(tensor.len.0 + 64),
                replaces_raw: ask == 1,
            }),
            _ => {}
        }
    }
    options
}

/// Every resident place of a plan, with the model it belongs to. Shared places are there once.
fn places(plan: &Plan) -> Vec<(Role, ds4_manifest::Place)> {
    let mut places: Vec<_> = plan.artifacts.iter().map(|artifact| (artifact.role, artifact.place)).collect();
    for model in &plan.models {
        places.extend(model.tensors.iter().filter_map(|tensor| Some((model.role, tensor.residency.place()?))));
    }
    places.sort();
    places.dedup();
    places
}

fn check(plan: &Plan, span: Bytes) {
    let places = places(plan);
    for (role, place) in &places {
        let range = &plan.ranges[place.range as usize];
        assert_eq!(range.role, *role, "a range holds one model");
        assert!(place.offset.0 + place.len.0 <= range.len.0, "a tensor is whole in its range");
        let large = place.len >= Bytes::mib(2);
        assert_eq!(large, range.placement == Placement::PerTensor);
        assert!(place.offset.0.is_multiple_of(if large { 2 << 20 } else { 256 }), "aligned");
    }
    let mut by_range = places.iter().map(|(_, place)| *place).collect::<Vec<_>>();
    by_range.sort_by_key(|place| (place.range, place.offset));
    for pair in by_range.windows(2).filter(|pair| pair[0].range == pair[1].range) {
        assert!(pair[0].offset.0 + pair[0].len.0 <= pair[1].offset.0, "no two share a byte");
    }
    for (index, range) in plan.ranges.iter().enumerate() {
        assert_eq!(range.id as usize, index);
        assert!(range.allocated >= range.len && range.allocated.0.is_multiple_of(plan.granularity.0));
        let there: Vec<_> = by_range.iter().filter(|place| place.range == range.id).collect();
        assert!(!there.is_empty(), "no empty range");
        assert!(range.len <= span || there.len() == 1, "only a tensor larger than the span exceeds it");
    }
}

proptest! {
    #[test]
    fn every_tensor_byte_is_accounted_for_once_and_no_places_overlap(
        base in prop::collection::vec(wanted(), 0..60),
        draft in prop::collection::vec(wanted(), 0..20),
        shard_every in 1usize..40,
        span_mib in (2u64..1024).prop_map(|half| half * 2),
    ) {
        let (base_table, draft_table) = (table(&base, shard_every), table(&draft, shard_every));
        let mut all = options(Role::Base, &base_table, &base, span_mib);
        let more = options(Role::Mtp, &draft_table, &draft, span_mib);
        all.artifacts.extend(more.artifacts);
        all.skip.extend(more.skip);
        let tables = [
            TensorTable { role: Role::Mtp, tensors: &draft_table },
            TensorTable { role: Role::Base, tensors: &base_table },
        ];
        let made = plan(&tables, &all).unwrap();
        check(&made, all.span);
        prop_assert_eq!(&made.totals, &made.count());
        let totals = made.totals;
        let bytes: u64 = base_table.iter().chain(&draft_table).map(|tensor| tensor.len.0).sum();
        let accounted = totals.raw.0 + totals.shared.0 + totals.replaced.0 + totals.skipped.0;
        prop_assert_eq!(accounted, bytes);
        prop_assert_eq!(totals.tensors as usize, base.len() + draft.len());

        let reversed = [tables[1], tables[0]];
        prop_assert_eq!(&plan(&reversed, &all).unwrap(), &made, "deterministic");
        let json = serde_json::to_string(&made).unwrap();
        prop_assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), made);
    }
}

#[test]
fn tensors_keep_file_order_and_small_ones_do_not_make_holes() {
    let mib = |n: u64| n << 20;
    let wanted: Vec<Wanted> = [400, mib(3), 12, mib(2), 256].map(|len| (len, false, 9)).to_vec();
    let tensors = table(&wanted, 9);
    let made = plan(&[TensorTable { role: Role::Base, tensors: &tensors }], &PlanOptions::default()).unwrap();
    let place = |index: usize| {
        let place = made.models[0].tensors[index].residency.place().unwrap();
        (place.range, place.offset.0)
    };
    assert_eq!([place(1), place(3)], [(0, 0), (0, mib(4))]);
    assert_eq!([place(0), place(2), place(4)], [(1, 0), (1, 512), (1, 768)]);
    assert_eq!(made.ranges[0].len, Bytes::mib(6));
    assert_eq!(made.ranges[1].allocated, Bytes::kib(64));
}

#[test]
fn a_tensor_larger_than_the_span_has_a_range_to_itself() {
    let wanted: Vec<Wanted> = [2u64 << 20, 2_270_000_000, 2 << 20].map(|len| (len, false, 9)).to_vec();
    let tensors = table(&wanted, 9);
    let made = plan(&[TensorTable { role: Role::Base, tensors: &tensors }], &PlanOptions::default()).unwrap();
    let ranges: Vec<u32> = made.models[0].tensors.iter().map(|t| t.residency.place().unwrap().range).collect();
    assert_eq!(ranges, [0, 1, 2]);
}

#[test]
fn the_plan_prints_as_json_with_its_schema_and_states() {
    let folder = tempfile::tempdir().unwrap();
    let model = support::model(folder.path());
    let skip = SkipRequest { role: Role::Base, tensor: "output".into(), reason: "not used".into() };
    let made = support::plan_of(&model, &PlanOptions { skip: vec![skip], ..PlanOptions::default() });
    let json = serde_json::to_value(&made).unwrap();
    assert_eq!(json["schema"], "ds4.plan/1");
    assert_eq!(json["models"][0]["role"], "base");
    let tensor = &json["models"][0]["tensors"][0];
    assert_eq!(tensor["name"], "blk.0.norm");
    assert_eq!(tensor["residency"]["state"], "raw");
    assert_eq!(tensor["residency"]["place"]["range"], 1);
    let output = json["models"][0]["tensors"].as_array().unwrap().last().unwrap();
    assert_eq!(output["residency"]["reason"], "not used");
    assert_eq!(json["ranges"][0]["placement"], "per-tensor");
}

#[test]
fn requests_that_cannot_be_met_are_refused_by_name() {
    let tensors = table(&[(400, false, 9)], 9);
    let base = TensorTable { role: Role::Base, tensors: &tensors };
    let skip = |tensor: &str, role| SkipRequest { role, tensor: tensor.into(), reason: "why".into() };
    let with = |skip| PlanOptions { skip, ..PlanOptions::default() };
    assert!(matches!(plan(&[base, base], &PlanOptions::default()), Err(PlanError::RoleTwice { role: Role::Base })));
    let error = plan(&[base], &with(vec![skip("t1", Role::Base)])).unwrap_err();
    assert_eq!(error.to_string(), "skip (why) asks for tensor \"t1\" of the base model, which has none of that name");
    assert!(matches!(plan(&[base], &with(vec![skip("t0", Role::Mtp)])), Err(PlanError::UnknownTensor { .. })));
    let twice = with(vec![skip("t0", Role::Base), skip("t0", Role::Base)]);
    assert!(matches!(plan(&[base], &twice), Err(PlanError::AskedTwice { .. })));
    let odd = PlanOptions { span: Bytes(3 << 20), ..PlanOptions::default() };
    assert!(matches!(plan(&[base], &odd), Err(PlanError::Sizes { .. })));
}

#[test]
fn sizes_that_do_not_fit_64_bits_are_an_error_and_not_a_wrap() {
    let huge = |name: &str, shard| TensorInfo {
        name: name.into(),
        kind: TensorType::I8,
        dims: vec![u64::MAX - (1 << 20)],
        shard,
        offset: FileOffset(0),
        len: Bytes(u64::MAX - (1 << 20)),
    };
    let tensors = [huge("a", 0), huge("b", 1)];
    let made = plan(&[TensorTable { role: Role::Base, tensors: &tensors }], &PlanOptions::default()).unwrap();
    assert_eq!(made.totals.raw, Bytes(u64::MAX));
    let past = TensorInfo { len: Bytes(u64::MAX), ..huge("c", 0) };
    let error = plan(&[TensorTable { role: Role::Base, tensors: &[past] }], &PlanOptions::default());
    assert_eq!(error, Err(PlanError::TooLarge { role: Role::Base }));
}

#[test]
fn an_artifact_replaces_or_accompanies_its_tensor() {
    let tensors = table(&[(400, false, 9), (3 << 20, false, 9)], 9);
    let artifact = |tensor: &str, replaces_raw| ArtifactRequest {
        role: Role::Base,
        tensor: tensor.into(),
        layout: "soa-v1".into(),
        len: Bytes(500),
        replaces_raw,
    };
    let artifacts = vec![artifact("t1", true), artifact("t0", false)];
    let options = PlanOptions { artifacts, ..PlanOptions::default() };
    let made = plan(&[TensorTable { role: Role::Base, tensors: &tensors }], &options).unwrap();
    let tensors = &made.models[0].tensors;
    assert!(matches!(tensors[0].residency, Residency::RawAndArtifact { artifact: 0, .. }));
    assert_eq!(tensors[1].residency, Residency::Replaced { artifact: 1 });
    assert_eq!((made.artifacts[1].tensor.as_str(), made.artifacts[1].place.len), ("t1", Bytes(500)));
    assert_eq!(made.totals.replaced, Bytes(3 << 20));
    assert_eq!(made.totals.artifacts, Bytes(1000));
}

/// Where a byte of an artifact lies depends on how long rows are.
#[test]
fn artifacts_of_the_same_bytes_in_rows_of_other_lengths_are_two() {
    let tensor = |name: &str, dims: [u64; 2]| {
        let (kind, len) = (TensorType::Q8_0, Bytes(128 * 34));
        TensorInfo { name: name.into(), kind, dims: dims.to_vec(), shard: 0, offset: FileOffset(4096), len }
    };
    let tensors = [tensor("short", [64, 64]), tensor("long", [128, 32])];
    let table = TensorTable { role: Role::Base, tensors: &tensors };
    let made = plan(&[table], &PlanOptions { artifacts: all_split(&[table]), ..PlanOptions::default() }).unwrap();
    assert_eq!(made.artifacts[0].place.len, made.artifacts[1].place.len);
    assert_ne!(made.artifacts[0].place, made.artifacts[1].place);
    assert!(made.artifacts.iter().all(|artifact| artifact.shared_with.is_none()));
}

#[test]
fn artifacts_of_the_same_bytes_are_one_and_lie_in_the_order_of_the_file() {
    let tensor = |name: &str, kind, dims: &[u64], offset| {
        let len = TensorType::byte_len(kind, dims.iter().product()).unwrap();
        TensorInfo { name: name.into(), kind, dims: dims.to_vec(), shard: 0, offset: FileOffset(offset), len }
    };
    let tensors = [
        tensor("z.first", TensorType::Q8_0, &[64, 40], 4096),
        tensor("a.norm", TensorType::F32, &[64], 8192),
        tensor("b.twin", TensorType::Q8_0, &[64, 40], 4096),
        tensor("c.last", TensorType::IQ2_XXS, &[256, 16, 2], 12288),
    ];
    let table = TensorTable { role: Role::Base, tensors: &tensors };
    let made = plan(&[table], &PlanOptions { artifacts: all_split(&[table]), ..PlanOptions::default() }).unwrap();
    let found: Vec<_> =
        made.artifacts.iter().map(|a| (a.tensor.as_str(), a.shared_with.as_deref(), a.place.len.0)).collect();
    // 40 rows are three panels of 16.
    let q8 = 3 * 16 * 68;
    assert_eq!(found, [("b.twin", None, q8), ("z.first", Some("b.twin"), q8), ("c.last", None, 2 * 16 * 66)]);
    assert_eq!(made.artifacts[0].place, made.artifacts[1].place);
    assert!(made.artifacts[1].place < made.artifacts[2].place);
    let raw = 40 * 68;
    let Totals { raw: norm, shared, replaced, artifacts, .. } = made.totals;
    assert_eq!([norm.0, shared.0, replaced.0, artifacts.0], [256, raw, raw + 32 * 66, q8 + 32 * 66]);
    assert_eq!(made.bytes_to_read().0, 256 + raw + 32 * 66);
}
