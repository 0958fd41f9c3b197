//! One connection from the greeting to its end, over any stream.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::ServerConfig;

use super::gate::Gate;
use super::handshake::{NamedDevice, Outcome, Tls, greet, negotiate};
use super::tls;
use super::transmission::serve;
use super::wire::Wire;

/// The parameters of a connection.
pub(super) struct Session<'a> {
    pub exports: &'a [NamedDevice<'a>],
    pub gate: &'a Gate,
    /// The state of TLS when the connection begins.
    pub tls: Tls,
    pub tls_config: Option<&'a Arc<ServerConfig>>,
    /// Called once, after the negotiation and before the first request.
    pub before_transmission: &'a dyn Fn(),
}

/// Runs a connection. The error is the reason why it ended early.
pub(super) fn run<S: Read + Write>(session: &Session<'_>, stream: S) -> io::Result<()> {
    let mut wire = Wire::new(stream);
    let client = greet(&mut wire)?;
    let outcome = negotiate(&mut wire, session.exports, client, session.tls, session.gate)?;
    let (Outcome::StartTls, Some(config)) = (outcome, session.tls_config) else {
        return transmit(session, &mut wire, outcome);
    };
    let mut wire = Wire::new(tls::accept(wire.into_stream()?, config)?);
    // Options negotiated before TLS are void, as the protocol demands.
    let outcome = negotiate(&mut wire, session.exports, client, Tls::Active, session.gate)?;
    let result = transmit(session, &mut wire, outcome);
    result.and(tls::say_goodbye(wire.stream_mut()))
}

fn transmit<S: Read + Write>(
    session: &Session<'_>,
    wire: &mut Wire<S>,
    outcome: Outcome,
) -> io::Result<()> {
    let Outcome::Transmission { structured, export } = outcome else { return Ok(()) };
    (session.before_transmission)();
    serve(wire, session.exports[export].device, session.gate, structured)
}
