//! Reads arbitrary bytes as traces, secrets and records of other tools: an error is fine, a panic
//! is a finding.
#![no_main]

use traceless_audit::{Accesses, Format, ImportReader};
use traceless_core::trace::{SecretReader, TraceReader, TraceWriter};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(reader) = SecretReader::new(bytes) {
        reader.for_each(drop);
    }
    let Ok(reader) = TraceReader::new(bytes) else {
        for format in Format::ALL {
            ImportReader::new(bytes, format).for_each(drop);
        }
        let _ = Format::detect(bytes);
        return;
    };
    let events: Vec<_> = reader.map_while(Result::ok).collect();
    let mut copy = vec![];
    let mut writer = TraceWriter::new(&mut copy).expect("memory takes everything");
    for event in &events {
        writer.append(*event).expect("memory takes everything");
    }
    writer.finish().expect("memory takes everything");
    let again: Result<Vec<_>, _> = TraceReader::new(&copy[..]).expect("it was written").collect();
    assert_eq!(again.expect("it is whole"), events);
    let _ = Accesses::segment(|| Ok::<_, ()>(events.iter().copied().map(Ok)));
});
