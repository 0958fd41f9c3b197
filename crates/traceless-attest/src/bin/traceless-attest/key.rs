//! `traceless-attest key`: gets a key from a key broker.

use crate::files::{Output, read_certificates};
use crate::machine::MachineArgs;
use crate::output::print_note;
use clap::Args;
use std::path::{Path, PathBuf};
use traceless_attest::{
    Attester, Broker, Error, MachineAttester, ResourceName, Result, SampleAttester, SessionKey,
};

#[derive(Args)]
pub struct KeyArgs {
    /// What the broker calls it: REPOSITORY/TYPE/TAG
    #[arg(value_name = "NAME")]
    name: ResourceName,
    /// The broker's address; http:// only on this machine
    #[arg(long, value_name = "URL")]
    broker: String,
    /// Certificates (PEM), one of which signs the broker's. Needed for https://
    #[arg(long, value_name = "FILE")]
    broker_cert: Option<PathBuf>,
    /// A new file for the key, for its owner alone; `-` is the standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    machine: MachineArgs,
    /// Send evidence of Trustee's kind `sample`, which proves nothing: to try a broker out, with
    /// `--out -` alone
    #[arg(long, conflicts_with = "evidence")]
    sample: bool,
}

pub fn run(args: &KeyArgs) -> Result {
    if args.sample && args.out != Path::new("-") {
        let reason = "a key for a sample is no secret, and is written into no file: --out -";
        return Err(Error::Usage(reason.into()));
    }
    let out = Output::new(&args.out)?;
    let trusted =
        args.broker_cert.as_deref().map(read_certificates).transpose()?.unwrap_or_default();
    let broker = Broker::new(&args.broker, &trusted)?;
    let attester: &dyn Attester =
        if args.sample { &SampleAttester } else { &MachineAttester::new(args.machine.source())? };
    let key = broker.resource(&args.name, attester, &SessionKey::random()?)?;
    out.write(&key)?;
    if args.sample {
        print_note("SAMPLE EVIDENCE: this broker gives its key to anybody.");
    }
    print_note(&format!("{}: {} bytes", args.name, key.len()));
    Ok(())
}
