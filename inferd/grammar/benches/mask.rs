//! What a mask costs with a vocabulary of full size: `cargo bench -p ds4-grammar`.
//!
//! Walks random valid answers of a few schemas and times every mask by itself, without the overlap with the model's
//! step that serving has. Prints median, 99th percentile and maximum in microseconds.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};
use support::{Walk, full_size, schemas};

const ANSWERS: u64 = 20;
const TOKENS_MAX: usize = 400;

fn main() {
    let begun = Instant::now();
    let vocabulary = full_size();
    let grammars = vocabulary.grammars();
    println!("vocabulary of {} tokens, prepared in {:?}", vocabulary.rows(), begun.elapsed());
    println!("{:<14} {:>10} {:>8} {:>10} {:>10} {:>10}", "schema", "compile", "masks", "p50 us", "p99 us", "max us");
    for (name, schema) in schemas() {
        let mut compile = Duration::MAX;
        let mut masks = Vec::new();
        for seed in 0..ANSWERS {
            let begun = Instant::now();
            let mask = grammars.json_schema(&schema, None).expect("a supported schema");
            compile = compile.min(begun.elapsed());
            let mut walk = Walk::new(mask, seed);
            for _ in 0..TOKENS_MAX {
                let begun = Instant::now();
                walk.mask.allowed().expect("a mask");
                masks.push(begun.elapsed().as_secs_f64() * 1e6);
                if walk.step(&vocabulary).is_none() {
                    break;
                }
            }
        }
        masks.sort_by(f64::total_cmp);
        let at = |part: f64| masks[((masks.len() - 1) as f64 * part) as usize];
        let compile = format!("{compile:.1?}");
        println!("{name:<14} {compile:>10} {:>8} {:>10.0} {:>10.0} {:>10.0}", masks.len(), at(0.5), at(0.99), at(1.0));
    }
}
