//! How close every part of a step comes to what the machine can do.
//!
//! The profiling library notes when each kernel ran, those of recorded steps as well. An operation's kernels are those that
//! were launched between the one before and it; a recording launches the same ones in the same order. Kernels overlap, so
//! a kernel's time is from the end of all before it to its own: together these are the time of the step.

use crate::conversation::Conversation;
use crate::journal::{Chosen, Launched};
use crate::truth::{Side, Sides};
use crate::work::{self, Part, Work};
use ds4_gpu::cuda::{KernelRun, KernelTrace};
use ds4_kernels::ceilings::Ceilings;
use ds4_kernels::cuda::{Cuda, CudaOptions, ceilings};
use ds4_kernels::kv_rows::PackedRows;
use std::collections::BTreeMap;

/// Rows of a prompt's step at most.
const ROWS: usize = 4096;
/// Tokens that a conversation holds after the steps of a prompt, and before those of an answer.
const DEPTHS: [usize; 2] = [2048, 32_768];
/// Answers that are written at once, at each depth.
const COMPANIES: [&[usize]; 2] = [&[1, 4, 16], &[1]];
/// Steps of an answer. The first ones launch and record their kernels, the others are measured.
const STEPS: usize = 10;
const STEPS_BEFORE: usize = 3;
/// The same for a prompt's step, which is computed over again.
const PROMPTS: usize = 2;
/// Gaps that are named.
const NAMED: usize = 3;

/// Prints a table for every kind of step; with `kernels` also what its kernels are.
pub(crate) fn print(sides: &Sides<'_>, trace: &KernelTrace, tokens: &[u32], kernels: bool) -> anyhow::Result<()> {
    let ceilings = ceilings(sides.gpu)?;
    let Ceilings { read, operations, .. } = ceilings;
    println!(
        "At best, in the same run: {:.0} GB/s read, {:.0} TFLOP/s of bf16 products.\n",
        read / 1e9,
        operations / 1e12
    );
    let endless: Vec<u32> = tokens.iter().copied().cycle().take(33_000).collect();
    let cuda = Cuda::<PackedRows>::new(sides.gpu, CudaOptions { context: sides.context })?;
    let side = Side::new(cuda.clone(), sides, sides.device)?;
    let mut bench = Bench { side, cuda, trace, ceilings, kernels };
    // Once unmeasured, so that memory is there.
    bench.side.conversation.feed(&endless[..ROWS], ROWS)?;
    bench.side.conversation.restart();
    for (depth, companies) in DEPTHS.into_iter().zip(COMPANIES) {
        let rows = ROWS.min(depth);
        let (held, last) = (bench.side.conversation.held(), depth - rows);
        if held < last {
            bench.side.conversation.feed(&endless[held..last], ROWS)?;
        }
        bench.prompt(&endless[last..depth])?;
        for &company in companies {
            bench.answers(company, &endless)?;
        }
    }
    Ok(())
}

struct Bench<'a> {
    side: Side,
    cuda: Cuda<PackedRows>,
    trace: &'a KernelTrace,
    ceilings: Ceilings,
    kernels: bool,
}

impl Bench<'_> {
    /// One step of a prompt, which is held afterwards.
    fn prompt(&mut self, tokens: &[u32]) -> anyhow::Result<()> {
        let step = |conversation: &mut Conversation| conversation.feed(tokens, tokens.len()).map(|_| ());
        self.side.journal().keep_routes();
        self.side.conversation.aside(step)?;
        let routes = self.side.journal().routes();
        let mut steps = Steps::default();
        for index in 0..PROMPTS {
            let last = index + 1 == PROMPTS;
            self.measure(
                &mut steps,
                &routes,
                |conversation| if last { step(conversation) } else { conversation.aside(step) },
            )?;
        }
        let title = format!("A prompt's step of {} rows, up to {}", tokens.len(), self.side.conversation.held());
        self.table(&title, &routes, &steps)
    }

    /// Steps of answers that are forgotten afterwards.
    fn answers(&mut self, company: usize, tokens: &[u32]) -> anyhow::Result<()> {
        // Answers to one prompt would choose the same experts more often than those to many.
        let mut forks = match company {
            1 => self.side.conversation.forks(1)?,
            _ => self.side.conversation.strangers(company, tokens, ROWS)?,
        };
        let mut routes = Vec::new();
        let mut before = self.side.conversation.copies(&forks, company)?;
        for _ in 0..STEPS {
            self.side.journal().keep_routes();
            self.side.conversation.write(&mut before, 1, tokens)?;
            routes.push(self.side.journal().routes());
        }
        self.side.conversation.close(before);
        // Those of a step in the middle stand for all.
        let routes = routes.swap_remove(STEPS / 2);
        let mut steps = Steps::default();
        for index in 0..STEPS {
            self.measure(&mut steps, &routes, |conversation| conversation.write(&mut forks, 1, tokens))?;
            if index < STEPS_BEFORE {
                steps.runs.clear();
            }
        }
        self.side.conversation.close(forks);
        let held = self.side.conversation.held();
        let title = if company == 1 { "A token".to_owned() } else { format!("{company} tokens of as many answers") };
        self.table(&format!("{title} at {held}, recorded"), &routes, &steps)
    }

    /// Notes the kernels of a step, and the operations of the first one.
    fn measure(
        &mut self,
        steps: &mut Steps,
        routes: &Chosen,
        step: impl FnOnce(&mut Conversation) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.trace.take()?;
        let before = self.cuda.launched();
        self.side.journal().trace(routes.clone());
        step(&mut self.side.conversation)?;
        let operations = self.side.journal().traced();
        let runs = self.trace.take()?;
        if steps.operations.is_empty() {
            anyhow::ensure!(!operations.is_empty(), "a step of this shape was recorded before");
            let launched = self.cuda.launched() - before;
            let noted = runs.len();
            anyhow::ensure!(noted as u64 == launched, "{launched} kernels were launched and {noted} were noted");
            steps.names = runs.iter().map(|run| run.name.clone()).collect();
            steps.first = before;
            steps.operations = operations;
        }
        let same = runs.iter().map(|run| &run.name).eq(&steps.names);
        anyhow::ensure!(same, "a later step has other kernels than the first of its shape");
        steps.runs.push(runs);
        Ok(())
    }

    fn table(&self, title: &str, routes: &Chosen, steps: &Steps) -> anyhow::Result<()> {
        let parts = steps.parts();
        let whole: f64 = parts.values().map(|row| row.seconds).sum();
        let floor = |work: Work| (work.bytes / self.ceilings.read).max(work.operations / self.ceilings.operations);
        let all: f64 = parts.values().map(|row| floor(row.work)).sum();
        println!("### {title}: {:.3} ms, {:.0} % of the ceiling\n", whole * 1e3, 100.0 * all / whole);
        let reached: usize = routes.iter().map(|layer| work::reached(layer)).sum();
        println!("Rows chose {:.1} experts a layer in the mean.\n", reached as f64 / routes.len().max(1) as f64);
        println!("| kernels | launches | ms | of the step | GB | GB/s | GFLOP | TFLOP/s | of the ceiling |");
        println!("|---|---|---|---|---|---|---|---|---|");
        let mut sorted: Vec<_> = parts.iter().collect();
        sorted.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        for (part, Row { launches, seconds, work, .. }) in &sorted {
            let share =
                if floor(*work) > 0.0 { format!("{:.0} %", 100.0 * floor(*work) / seconds) } else { "-".into() };
            println!(
                "| {} | {launches} | {:.3} | {:.1} % | {:.3} | {:.0} | {:.1} | {:.1} | {share} |",
                part.name(),
                seconds * 1e3,
                100.0 * seconds / whole,
                work.bytes / 1e9,
                work.bytes / seconds / 1e9,
                work.operations / 1e9,
                work.operations / seconds / 1e12,
            );
        }
        let gap = |row: &Row| row.seconds - floor(row.work);
        sorted.sort_by(|a, b| gap(b.1).total_cmp(&gap(a.1)));
        let named = sorted.iter().take(NAMED).map(|(part, row)| format!("{} ({:.3} ms)", part.name(), gap(row) * 1e3));
        println!("\nLargest gaps: {}.\n", named.collect::<Vec<_>>().join(", "));
        if self.kernels {
            for (part, row) in &parts {
                for (kernel, (count, seconds)) in &row.kernels {
                    println!("    {:46} {kernel:44} {count:5} x {:9.1} us", part.name(), seconds / *count as f64 * 1e6);
                }
            }
            println!();
        }
        Ok(())
    }
}

/// Steps of one shape.
#[derive(Default)]
struct Steps {
    /// The kernels' names, in order.
    names: Vec<String>,
    /// Kernels that were launched before the first step.
    first: u64,
    operations: Vec<Launched>,
    /// The kernels of the steps that count.
    runs: Vec<Vec<KernelRun>>,
}

/// What a part took, in the mean of the steps.
#[derive(Default)]
struct Row {
    launches: usize,
    seconds: f64,
    work: Work,
    kernels: BTreeMap<String, (usize, f64)>,
}

impl Steps {
    fn parts(&self) -> BTreeMap<Part, Row> {
        let mut parts = BTreeMap::<Part, Row>::new();
        let times = self.times();
        let mut operations = self.operations.iter().peekable();
        for (index, (name, seconds)) in self.names.iter().zip(times).enumerate() {
            while operations.next_if(|operation| operation.kernels <= self.first + index as u64).is_some() {}
            // What comes after the last operation chooses tokens.
            let part = operations.peek().map_or(Part::Greedy, |operation| part_of(operation.part, name));
            let row = parts.entry(part).or_default();
            row.launches += 1;
            row.seconds += seconds;
            let grid = self.runs[0][index].grid;
            let kernel = row.kernels.entry(format!("{name} {grid:?}")).or_default();
            kernel.0 += 1;
            kernel.1 += seconds;
        }
        for (part, work) in self.operations.iter().flat_map(|operation| &operation.works) {
            let mut part = *part;
            while !parts.contains_key(&part) {
                match part.within() {
                    Some(outer) => part = outer,
                    None => break,
                }
            }
            if let Some(row) = parts.get_mut(&part) {
                row.work += *work;
            }
        }
        parts
    }

    /// Seconds of every kernel: the mean of the steps.
    fn times(&self) -> Vec<f64> {
        let mut times = vec![0.0; self.names.len()];
        for runs in &self.runs {
            let mut end = runs.first().map_or(0, |run| run.start);
            for (time, run) in times.iter_mut().zip(runs) {
                *time += run.end.saturating_sub(end) as f64 * 1e-9 / self.runs.len() as f64;
                end = end.max(run.end);
            }
        }
        times
    }
}

/// The part that a kernel of an operation belongs to, by its name.
fn part_of(operation: Part, kernel: &str) -> Part {
    let has = |word: &str| kernel.contains(word);
    match operation {
        _ if has("operand_gather") => Part::Gathering,
        _ if has("operand") => Part::Operands,
        // A product that is merged at once is a product.
        _ if has("merge") && !has("merged") => Part::Merging,
        _ if has("settle") => Part::Settling,
        _ if kernel.starts_with("mix") => Part::Mixing,
        Part::IndexScores if has("best") => Part::IndexChoice,
        Part::Attention if !kernel.starts_with("attend") => Part::HeadProduct,
        Part::ExpertsUp => match () {
            () if kernel.starts_with("route") => Part::Choice,
            () if has("route") => Part::RouterProduct,
            () if has("group") || has("gather") || has("combine") => Part::Gathering,
            () if has("products") => Part::SharedUp,
            () if has("f16") => Part::RouterProduct,
            () if has("q8_0") && (has("gated") || has("stream")) => Part::SharedUp,
            () if has("q8_0") => Part::SharedDown,
            () if has("down") || has("q2_k") => Part::ExpertsDown,
            () => Part::ExpertsUp,
        },
        other => other,
    }
}
