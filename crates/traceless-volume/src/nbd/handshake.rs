//! Fixed newstyle negotiation: the export, and the protocol features that client and server use.

use std::io::{self, Read, Write};

use super::gate::Gate;
use super::protocol::{
    Fields, GREETING_MAGIC, NAME_LEN_MAX, OPTION_LEN_MAX, OPTION_MAGIC, OPTION_REPLY_MAGIC,
    PAYLOAD_LEN_MAX, flag, greeting, info, opt, rep,
};
use super::wire::Wire;
use crate::device::Device;

/// Options answered on one connection. A client needs about five.
const OPTIONS_MAX: usize = 64;
const DESCRIPTION: &str = "Traceless volume";
const BLOCK_LEN_MIN: u32 = 512;

/// The properties of the device that clients get. They do not change while a client is connected.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExportInfo {
    pub len: u64,
    pub read_only: bool,
    block_len: u32,
    pub keeps_discards: bool,
}

/// What clients may choose: a device, and the name that it has. The device with the empty name is
/// what clients get that name nothing.
#[derive(Clone, Copy)]
pub struct NamedDevice<'a> {
    /// Its name.
    pub name: &'a str,
    /// The device.
    pub device: &'a dyn Device,
}

/// The state of TLS on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// The server has no certificate.
    Unavailable,
    /// The client may start TLS.
    Offered,
    /// The client must start TLS before anything else.
    Required,
    /// TLS is in force.
    Active,
}

/// The end of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The client has chosen export number `export`.
    Transmission { structured: bool, export: usize },
    /// TLS begins, and then the negotiation continues.
    StartTls,
    /// The connection ends.
    Over,
}

impl ExportInfo {
    pub fn of(device: &dyn Device) -> Self {
        Self {
            len: device.len(),
            read_only: device.read_only(),
            block_len: device.block_len(),
            keeps_discards: device.keeps_discards(),
        }
    }

    fn flags(&self, structured: bool) -> u16 {
        // All connections serve one volume, so a flush covers the writes of all of them.
        let mut flags = flag::HAS_FLAGS
            | flag::SEND_FLUSH
            | flag::SEND_FUA
            | flag::SEND_WRITE_ZEROES
            | flag::CAN_MULTI_CONN;
        if self.read_only {
            flags |= flag::READ_ONLY;
        }
        if self.keeps_discards {
            flags |= flag::SEND_TRIM | flag::SEND_FAST_ZERO;
        }
        if structured {
            flags |= flag::SEND_DF;
        }
        flags
    }

    /// Smallest, preferred and largest request in bytes. Any alignment is accepted nevertheless.
    fn block_lens(&self) -> [u32; 3] {
        // The protocol requires powers of two.
        let preferred = self.block_len.clamp(1, PAYLOAD_LEN_MAX).next_power_of_two();
        [BLOCK_LEN_MIN.min(preferred), preferred, PAYLOAD_LEN_MAX]
    }
}

/// Sends the greeting and takes the client's flags.
pub(super) fn greet<S: Read + Write>(wire: &mut Wire<S>) -> io::Result<ClientFlags> {
    wire.put(&GREETING_MAGIC.to_be_bytes())?;
    wire.put(&OPTION_MAGIC.to_be_bytes())?;
    wire.put(&(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES).to_be_bytes())?;
    wire.flush()?;
    let flags = u32::from_be_bytes(wire.take()?);
    let known = u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
    if flags & !known != 0 {
        return Err(out_of_step("the client has flags that were not offered"));
    }
    Ok(ClientFlags { no_zeroes: flags & u32::from(greeting::NO_ZEROES) != 0 })
}

/// The flags with which the client answers the greeting.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientFlags {
    no_zeroes: bool,
}

/// Answers options until the client begins transmission or TLS, or gives up.
pub(super) fn negotiate<S: Read + Write>(
    wire: &mut Wire<S>,
    exports: &[NamedDevice<'_>],
    client: ClientFlags,
    tls: Tls,
    gate: &Gate,
) -> io::Result<Outcome> {
    let mut haggling = Haggling { wire, exports, client, tls, structured: false };
    for _ in 0..OPTIONS_MAX {
        if gate.is_shut() {
            return Ok(Outcome::Over);
        }
        let outcome = haggling.answer()?;
        haggling.wire.flush()?;
        if let Some(outcome) = outcome {
            return Ok(outcome);
        }
    }
    Err(out_of_step("the client never stops asking"))
}

/// A negotiation in progress.
struct Haggling<'a, S> {
    wire: &'a mut Wire<S>,
    exports: &'a [NamedDevice<'a>],
    client: ClientFlags,
    tls: Tls,
    structured: bool,
}

impl<S: Read + Write> Haggling<'_, S> {
    /// Answers one option. Returns `None` if another one may follow.
    fn answer(&mut self) -> io::Result<Option<Outcome>> {
        if u64::from_be_bytes(self.wire.take()?) != OPTION_MAGIC {
            return Err(out_of_step("an option was expected"));
        }
        let option = u32::from_be_bytes(self.wire.take()?);
        let len = u32::from_be_bytes(self.wire.take()?);
        if len > OPTION_LEN_MAX {
            self.refuse(option, rep::ERR_TOO_BIG, "the option is too long")?;
            return Ok(Some(Outcome::Over));
        }
        let len = len as usize;
        self.wire.read_payload(len)?;
        let data = self.wire.payload(len).to_vec();

        let before_tls = matches!(option, opt::STARTTLS | opt::ABORT);
        if self.tls == Tls::Required && !before_tls {
            if option == opt::EXPORT_NAME {
                return Ok(Some(Outcome::Over)); // The protocol has no error reply here.
            }
            self.refuse(option, rep::ERR_TLS_REQD, "use TLS: send NBD_OPT_STARTTLS first")?;
            return Ok(None);
        }
        match option {
            opt::EXPORT_NAME => self.export_name(&data).map(Some),
            opt::ABORT => {
                self.reply(option, rep::ACK, &[])?;
                Ok(Some(Outcome::Over))
            }
            opt::LIST => self.list(&data),
            opt::STARTTLS => self.start_tls(&data),
            opt::INFO | opt::GO => self.info(option, &data),
            opt::STRUCTURED_REPLY => self.structured_reply(&data),
            _ => {
                self.refuse(option, rep::ERR_UNSUP, "this server does not know the option")?;
                Ok(None)
            }
        }
    }

    /// The oldest way to begin transmission. Its only way to report an error is to hang up.
    fn export_name(&mut self, name: &[u8]) -> io::Result<Outcome> {
        let Some((export, about)) = self.chosen(name) else { return Ok(Outcome::Over) };
        self.wire.put(&about.len.to_be_bytes())?;
        self.wire.put(&about.flags(self.structured).to_be_bytes())?;
        if !self.client.no_zeroes {
            self.wire.put(&[0; 124])?;
        }
        Ok(Outcome::Transmission { structured: self.structured, export })
    }

    /// The number and the properties of the export of this name.
    fn chosen(&self, name: &[u8]) -> Option<(usize, ExportInfo)> {
        let nth = self.exports.iter().position(|export| export.name.as_bytes() == name)?;
        Some((nth, ExportInfo::of(self.exports[nth].device)))
    }

    fn list(&mut self, data: &[u8]) -> io::Result<Option<Outcome>> {
        if !data.is_empty() {
            self.refuse(opt::LIST, rep::ERR_INVALID, "LIST takes no data")?;
            return Ok(None);
        }
        for export in self.exports {
            let name_len = (export.name.len() as u32).to_be_bytes();
            let about = [&name_len[..], export.name.as_bytes(), DESCRIPTION.as_bytes()].concat();
            self.reply(opt::LIST, rep::SERVER, &about)?;
        }
        self.reply(opt::LIST, rep::ACK, &[])?;
        Ok(None)
    }

    fn start_tls(&mut self, data: &[u8]) -> io::Result<Option<Outcome>> {
        let option = opt::STARTTLS;
        let refusal = match self.tls {
            _ if !data.is_empty() => (rep::ERR_INVALID, "STARTTLS takes no data"),
            Tls::Unavailable => (rep::ERR_POLICY, "this server has no certificate"),
            Tls::Active => (rep::ERR_INVALID, "TLS is already in force"),
            Tls::Offered | Tls::Required => {
                self.reply(option, rep::ACK, &[])?;
                return Ok(Some(Outcome::StartTls));
            }
        };
        self.refuse(option, refusal.0, refusal.1)?;
        Ok(None)
    }

    fn structured_reply(&mut self, data: &[u8]) -> io::Result<Option<Outcome>> {
        let option = opt::STRUCTURED_REPLY;
        if data.is_empty() {
            self.structured = true;
            self.reply(option, rep::ACK, &[])?;
        } else {
            self.refuse(option, rep::ERR_INVALID, "STRUCTURED_REPLY takes no data")?;
        }
        Ok(None)
    }

    fn info(&mut self, option: u32, data: &[u8]) -> io::Result<Option<Outcome>> {
        let Some((name, wanted)) = parse_info(data) else {
            self.refuse(option, rep::ERR_INVALID, "the lengths in the option do not add up")?;
            return Ok(None);
        };
        let Some((nth, export)) = self.chosen(name) else {
            self.refuse(option, rep::ERR_UNKNOWN, "there is no export of this name")?;
            return Ok(None);
        };
        let mut about = info::EXPORT.to_be_bytes().to_vec();
        about.extend(export.len.to_be_bytes());
        about.extend(export.flags(self.structured).to_be_bytes());
        self.reply(option, rep::INFO, &about)?;

        about = info::BLOCK_SIZE.to_be_bytes().to_vec();
        about.extend(export.block_lens().iter().flat_map(|len| len.to_be_bytes()));
        self.reply(option, rep::INFO, &about)?;

        // One reply of each kind is enough, even if the client requests the kind several times.
        if wanted.contains(&info::NAME) {
            self.reply(option, rep::INFO, &[&info::NAME.to_be_bytes()[..], name].concat())?;
        }
        if wanted.contains(&info::DESCRIPTION) {
            let head = info::DESCRIPTION.to_be_bytes();
            self.reply(option, rep::INFO, &[&head[..], DESCRIPTION.as_bytes()].concat())?;
        }
        self.reply(option, rep::ACK, &[])?;
        let go = Outcome::Transmission { structured: self.structured, export: nth };
        Ok((option == opt::GO).then_some(go))
    }

    fn refuse(&mut self, option: u32, reply: u32, why: &str) -> io::Result<()> {
        self.reply(option, reply, why.as_bytes())
    }

    fn reply(&mut self, option: u32, reply: u32, data: &[u8]) -> io::Result<()> {
        self.wire.put(&OPTION_REPLY_MAGIC.to_be_bytes())?;
        self.wire.put(&option.to_be_bytes())?;
        self.wire.put(&reply.to_be_bytes())?;
        self.wire.put(&(data.len() as u32).to_be_bytes())?;
        self.wire.put(data)
    }
}

/// The name and the requested kinds of information in INFO and GO.
fn parse_info(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut fields = Fields(data);
    let name_len = fields.u32().filter(|&len| len <= NAME_LEN_MAX)?;
    let name = fields.bytes(name_len as usize)?;
    let wanted = (0..fields.u16()?).map(|_| fields.u16()).collect::<Option<_>>()?;
    fields.0.is_empty().then_some((name, wanted))
}

fn out_of_step(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
