//! Other ORAM libraries and ours under the same workload, in turns, in one process with one thread.
//!
//! `bench/peers/run [--slow] [LOG2_BLOCKS...]` prints a table; README.md says what is compared.
#![forbid(unsafe_code)]

mod arrays;
mod maps;

use std::hint::black_box;

/// Rounds, of which the fastest counts.
const ROUNDS: usize = 5;

/// CPU time of a round.
const ROUND_S: f64 = 0.4;

/// One library under one workload.
struct Subject {
    name: &'static str,
    /// What it does for its caller.
    does: &'static str,
    /// Does one operation, on what is chosen by a random number.
    operate: Box<dyn FnMut(u64)>,
    init_s: f64,
    best_us: f64,
}

impl Subject {
    /// Makes one, and takes the time.
    fn made<T: 'static>(
        name: &'static str,
        does: &'static str,
        make: impl FnOnce() -> T,
        mut operate: impl FnMut(&mut T, u64) + 'static,
    ) -> Self {
        let started = cpu_s();
        let mut it = make();
        let init_s = cpu_s() - started;
        println!("  {name}: made in {init_s:.2} s");
        let operate = Box::new(move |number| operate(&mut it, number));
        Self { name, does, operate, init_s, best_us: f64::INFINITY }
    }

    /// One round, of as many operations as there is time for.
    fn round(&mut self, numbers: &mut Numbers) {
        let (started, mut count) = (cpu_s(), 0_u32);
        let mut passed = 0.0;
        while passed < ROUND_S {
            for _ in 0..500 {
                (self.operate)(black_box(numbers.next()));
            }
            count += 500;
            passed = cpu_s() - started;
        }
        self.best_us = self.best_us.min(passed * 1e6 / f64::from(count));
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let slow = args.iter().any(|arg| arg == "--slow");
    let logs: Vec<u32> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    println!("machine: {}", machine());
    for log in if logs.is_empty() { vec![16, 20] } else { logs } {
        measure(&format!("2^{log} blocks of 64 bytes"), arrays::subjects(1 << log, slow));
        measure(&format!("a map of 2^{log} entries, look-ups"), maps::look_ups(1 << log));
        measure(&format!("a map of 2^{log} entries, insertions"), maps::insertions(1 << log));
    }
}

fn measure(title: &str, mut subjects: Vec<Subject>) {
    let mut numbers = Numbers(1);
    for _ in 0..=ROUNDS {
        for subject in &mut subjects {
            subject.round(&mut numbers);
        }
    }
    let ours = subjects[0].best_us;
    println!("\n{title}\n\n| library | what | us | of ours | made in s |\n|---|---|---|---|---|");
    for Subject { name, does, init_s, best_us, .. } in &subjects {
        println!("| {name} | {does} | {best_us:.2} | {:.2} | {init_s:.2} |", best_us / ours);
    }
    println!();
}

/// The numbers of splitmix64: the same for every subject but for where in them it is.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// CPU time of this program, which has one thread.
fn cpu_s() -> f64 {
    let times = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells");
    let ns: f64 = times.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number");
    ns * 1e-9
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or("unknown", |model| model.trim_start_matches([':', '\t', ' '])).to_owned()
}
