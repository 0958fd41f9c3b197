//! The class `Gateway`.

use crate::buffer::InputBuffer;
use crate::failure::{Failure, FailureKind, Result};
use crate::handle::Handle;
use crate::json::to_python;
use crate::storage::Recording;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::ops::Bound as Limit;
use std::path::PathBuf;
use std::sync::Arc;
use traceless_cli::cloud::failure;
use traceless_cloud::Error;
use traceless_cloud::gateway::{
    Counts, Gateway as Store, Namespace, QUERIES_PER_SECOND_MAX, Value,
};
use traceless_cloud::kernel::Choice;
use traceless_cloud::local_deployment::{LocalDeployment, OpenGateway};
use traceless_cloud::params::Params;
use traceless_cloud::remote::{HostAddress, Identity, Remote};
use traceless_cloud::shared::{RateThread, SharedGateway, Wall};
use traceless_cloud::store::Durability;
use traceless_cloud::tee::{Policy, VerifierProgram};
use traceless_core::trace::Witness;

/// The verifier of evidence, in PATH.
const VERIFIER: &str = "traceless-attest";
const EXCLUSIVE: &str = "`attestation_policy` and `allow_simulated_tee` exclude each other";

/// A cloud store of values under names. It does not learn which value is requested, nor whether a
/// request reads or writes. This object is the gateway, which knows where each block lies.
///
/// folder: where the gateway keeps its state; without a `host` the whole store lies there.
/// blocks: blocks of the store, the same at each opening. A value takes one or more of them.
/// block_len: bytes of a block, the same at each opening.
/// host: the address of a `traceless host`, as "host.example:6500", or a list of addresses: the
///     tree is divided among these hosts, which are named at most 8, in the same order each time.
/// host_cert: a file with the host's certificate, or with the ones that sign it; a list of files if
///     each host has its own.
/// client_cert, client_key: files with the gateway's own certificate and its key, for a host that
///     requires one.
/// allow_simulated_tee: go on although the enclave is simulated, and so protects nothing from the
///     machine that it runs on.
/// attestation_policy: a file; the key is given only to hosts in confidential virtual machines that
///     it accepts. The program traceless-attest verifies them.
/// collateral: files, or folders of them, that makers of processors signed.
/// made_up_root: certificates that take the place of the makers', for simulators.
/// verifier: the program traceless-attest, if it is not in PATH.
/// rate: always send so many queries a second; by default they are sent as they are needed, and
///     the host learns when requests are made, and the size class of each value.
/// together: with rate, send so many queries at once, as much more rarely, for a host that is far
///     away: a divisor of 20 times limit_bits, at most 64.
/// key_file: a file of 32 bytes, the master key; by default it is in the folder, beside the state.
/// anchor: a file elsewhere that records how far the state has come: an older state is refused.
/// durability: what a finished write has survived: "power", the end of the machine's power, or
///     "process", the end of this process.
/// copies: keep copies of values used lately, up to so many bytes; to read one sends nothing.
/// kernel: how the enclave permutes, the same at each opening: "benes" or "paper".
/// limit_bits: each limit of the tree is met with probability 2^-limit_bits, the same at each
///     opening.
/// arity: children of a node, the same at each opening: with 16 a large tree has a layer less, so
///     fewer requests to the host, and larger nodes.
/// trace: a file to make with what the host sees; see `read_trace`.
///
/// It is used like a `dict` from byte strings to byte strings, and is a context manager that closes
/// it. It serves one call at a time, of any thread. Values that clients of `traceless gateway`
/// stored by the Redis protocol are there, too; that they expire counts for the protocol alone.
///
/// >>> store = traceless.Gateway("store", 1000, 256, allow_simulated_tee=True)
/// >>> store[b"ann"] = b"blue"
/// >>> store[b"ann"]
/// b'blue'
/// >>> store.close()
#[pyclass(frozen, module = "traceless")]
pub struct Gateway {
    handle: Handle<Session>,
    blocks: u64,
    block_len: usize,
    /// A description of the enclave.
    enclave: String,
}

/// An open gateway. The fields are in the order in which they end.
struct Session {
    rate: Option<RateThread>,
    store: Arc<SharedGateway>,
    recording: Option<Recording>,
}

#[pymethods]
impl Gateway {
    #[new]
    #[pyo3(signature = (
        folder, blocks, block_len = 1024, *, host = None, host_cert = None, client_cert = None,
        client_key = None, allow_simulated_tee = false, attestation_policy = None,
        collateral = None, made_up_root = None, verifier = None, rate = None, together = 1,
        key_file = None, anchor = None, durability = "power", copies = None, kernel = "benes",
        limit_bits = 32, arity = 8, trace = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        blocks: u64,
        block_len: usize,
        host: Option<OneOrMore<String>>,
        host_cert: Option<OneOrMore<PathBuf>>,
        client_cert: Option<PathBuf>,
        client_key: Option<PathBuf>,
        allow_simulated_tee: bool,
        attestation_policy: Option<PathBuf>,
        collateral: Option<OneOrMore<PathBuf>>,
        made_up_root: Option<PathBuf>,
        verifier: Option<PathBuf>,
        rate: Option<u32>,
        together: usize,
        key_file: Option<PathBuf>,
        anchor: Option<PathBuf>,
        durability: &str,
        copies: Option<usize>,
        kernel: &str,
        limit_bits: u32,
        arity: u32,
        trace: Option<PathBuf>,
    ) -> Result<Self> {
        let choice = choice(kernel)?;
        let place = Place {
            folder,
            host: host_of(host, host_cert, client_cert, client_key)?,
            policy: match attestation_policy {
                None if allow_simulated_tee => Policy::Simulated,
                None => Policy::Unset,
                Some(_) if allow_simulated_tee => return Err(Failure::usage(EXCLUSIVE)),
                Some(policy) => hardware(policy, collateral, made_up_root, verifier),
            },
            key_file,
            anchor,
            choice,
            durability: durability_of(durability)?,
        };
        check_numbers(rate, limit_bits)?;
        let params = Params::for_kernel(choice, arity, blocks, block_len, limit_bits)?;
        py.detach(|| {
            let recording = trace.as_deref().map(Recording::create).transpose()?;
            let witness = recording.as_ref().map(|r| r.witness.clone() as Arc<dyn Witness>);
            let OpenGateway { mut gateway, enclave } = place.open(params, witness)?;
            if let Some(len) = copies {
                gateway.keep_copies(len);
            }
            let store = Arc::new(SharedGateway::new(gateway, Arc::default(), Arc::new(Wall)));
            let rate = rate.map(|ticks| RateThread::start(&store, ticks, together)).transpose()?;
            let handle = Handle::new("gateway", Session { rate, store, recording });
            Ok(Self { handle, blocks, block_len, enclave })
        })
    }

    /// The number of blocks.
    #[getter]
    fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of a block.
    #[getter]
    fn block_len(&self) -> usize {
        self.block_len
    }

    /// A description of the enclave.
    #[getter]
    fn enclave(&self) -> &str {
        &self.enclave
    }

    /// Whether the gateway was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.handle.is_closed(py)
    }

    /// The value of a name, or `default`.
    #[pyo3(signature = (name, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'_, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        Ok(self.load(py, name)?.map(Bound::into_any).or(default))
    }

    /// The values of several names, with None where there is none. Their queries are sent together.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        names: &Bound<'_, PyAny>,
    ) -> Result<Vec<Option<Bound<'py, PyBytes>>>> {
        let names = names.try_iter()?.map(|name| owned(&name?)).collect::<Result<Vec<_>>>()?;
        let values = self.run(py, |store| {
            store.load_many(&names.iter().map(Vec::as_slice).collect::<Vec<_>>())
        })?;
        values
            .into_iter()
            .map(|value| Ok(value.transpose()?.map(|value| PyBytes::new(py, &value))))
            .collect()
    }

    /// Sets the values of several names: of a mapping, or of pairs. Their queries are sent
    /// together.
    /// If there is no room for them, all stay as they were.
    fn update(&self, py: Python<'_>, entries: &Bound<'_, PyAny>) -> Result {
        let pairs = match entries.getattr_opt("items")? {
            Some(items) => items.call0()?,
            None => entries.clone(),
        };
        let mut values = vec![];
        for pair in pairs.try_iter()? {
            let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            values.push((owned(&name)?, owned(&value)?));
        }
        self.run(py, |store| {
            let values = values.iter().map(|(name, bytes)| Value { name, bytes, note: &[] });
            store.store_many(&values.collect::<Vec<_>>())
        })
    }

    /// Removes a name. Returns whether there was one.
    fn remove(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> Result<bool> {
        let name = owned(name)?;
        self.run(py, |store| store.remove(&name))
    }

    /// All names, in order. The gateway knows them, so this sends nothing.
    fn names<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyBytes>>> {
        let names = self.read_state(py, |store| {
            let names = store.names_from(Namespace::Values, Limit::Unbounded);
            names.map(|(name, _)| name.to_vec()).collect::<Vec<_>>()
        })?;
        Ok(names.iter().map(|name| PyBytes::new(py, name)).collect())
    }

    /// What was counted since the opening: a dictionary with `queries` sent, `hits` that sent
    /// nothing, `rounds`, and `blocks_used` now. At a constant rate also `ticks_used` and
    /// `ticks_unused`.
    fn counts<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let read = |store: &Store| (store.counts(), store.blocks_used());
        let (counts, blocks_used) =
            self.handle.with(py, |session| Ok(session.store.inspect(read)))?;
        let Counts { queries, hits, rounds, ticks_used, ticks_unused, .. } = counts;
        let counts = serde_json::json!({
            "queries": queries, "hits": hits, "rounds": rounds, "blocks_used": blocks_used,
            "ticks_used": ticks_used, "ticks_unused": ticks_unused,
        });
        to_python(py, &counts)
    }

    /// Saves the state, and ends the gateway. A second call does nothing.
    fn close(&self, py: Python<'_>) -> Result {
        self.handle.take(py, Session::close).map(|_| ())
    }

    /// The number of names.
    fn __len__(&self, py: Python<'_>) -> Result<usize> {
        self.read_state(py, |store| store.names(Namespace::Values))
    }

    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> Result<bool> {
        let name = owned(name)?;
        self.read_state(py, |store| store.find(Namespace::Values, &name).is_some())
    }

    fn __iter__(&self, py: Python<'_>) -> Result<Py<PyAny>> {
        let names = self.names(py)?.into_pyobject(py)?;
        Ok(names.try_iter()?.into_any().unbind())
    }

    fn __getitem__<'py>(&self, name: &Bound<'py, PyAny>) -> Result<Bound<'py, PyBytes>> {
        self.load(name.py(), name)?.ok_or_else(|| missing(name))
    }

    fn __setitem__(&self, name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result {
        let (py, name, value) = (name.py(), owned(name)?, InputBuffer::of(value)?);
        let value = value.as_slice()?;
        self.run(py, |store| store.store(&name, value, &[]))
    }

    fn __delitem__(&self, name: &Bound<'_, PyAny>) -> Result {
        if self.remove(name.py(), name)? { Ok(()) } else { Err(missing(name)) }
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> Result {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let closed = if self.closed(py) { ", closed" } else { "" };
        format!("<traceless.Gateway of {} blocks{closed}>", self.blocks)
    }
}

impl Gateway {
    fn load<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'_, PyAny>,
    ) -> Result<Option<Bound<'py, PyBytes>>> {
        let name = owned(name)?;
        let value = self.run(py, |store| store.load(&name))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Store) -> traceless_cloud::Result<T> + Send,
    ) -> Result<T> {
        self.handle.with(py, |session| Ok(session.store.run(work)?))
    }

    /// Reads what the gateway itself knows. Fails if another gateway has the store meanwhile.
    fn read_state<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&Store) -> T + Send,
    ) -> Result<T> {
        self.handle.with(py, |session| Ok(session.store.read_state(read)?))
    }
}

impl Session {
    fn close(self) -> Result {
        let Self { rate, store, recording } = self;
        // It sends queries until here.
        drop(rate);
        let closed = store.close();
        drop(store);
        let finished = recording.map_or(Ok(()), |recording| recording.finish());
        closed?;
        finished
    }
}

/// Where a store is, and how it is opened.
struct Place {
    folder: PathBuf,
    host: Option<RemoteHosts>,
    policy: Policy,
    key_file: Option<PathBuf>,
    anchor: Option<PathBuf>,
    choice: Choice,
    durability: Durability,
}

/// The evidence of hardware that a policy accepts.
fn hardware(
    policy: PathBuf,
    collateral: Option<OneOrMore<PathBuf>>,
    made_up_root: Option<PathBuf>,
    verifier: Option<PathBuf>,
) -> Policy {
    Policy::Hardware(Arc::new(VerifierProgram {
        path: verifier.unwrap_or_else(|| VERIFIER.into()),
        policy,
        collateral: collateral.map(OneOrMore::list).unwrap_or_default(),
        made_up_root,
    }))
}

/// One value, or a list of them.
#[derive(FromPyObject)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    fn list(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::More(list) => list,
        }
    }
}

struct RemoteHosts {
    hosts: Vec<HostAddress>,
    identity: Option<Identity>,
}

impl Place {
    fn open(self, params: Params, witness: Option<Arc<dyn Witness>>) -> Result<OpenGateway> {
        let Self { folder, host, policy, key_file, anchor, choice, durability } = self;
        let key_file = key_file.as_deref();
        let Some(RemoteHosts { hosts, identity }) = host else {
            let local = LocalDeployment::new(&folder, key_file, None, policy);
            let local = local.watched_by(witness).anchored_by(anchor);
            return Ok(local.open(params, choice, durability)?);
        };
        let remote = Remote { hosts, identity, policy, anchor, witness };
        Ok(remote.open(&folder, key_file, params, choice, durability)?)
    }
}

fn host_of(
    host: Option<OneOrMore<String>>,
    certificate: Option<OneOrMore<PathBuf>>,
    client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>,
) -> Result<Option<RemoteHosts>> {
    let identity = match (client_cert, client_key) {
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        (None, None) => None,
        _ => return Err(Failure::usage("`client_cert` and `client_key` go together")),
    };
    match (host, certificate) {
        (Some(addresses), Some(certificates)) => {
            let (addresses, mut certificates) = (addresses.list(), certificates.list());
            if let [all] = &certificates[..] {
                certificates = vec![all.clone(); addresses.len()];
            }
            if addresses.is_empty() || addresses.len() != certificates.len() {
                return Err(Failure::usage("give one `host_cert`, or one for each `host`"));
            }
            let host = |(address, certificate)| HostAddress { address, certificate };
            let hosts = addresses.into_iter().zip(certificates).map(host).collect();
            Ok(Some(RemoteHosts { hosts, identity }))
        }
        (Some(_), None) => Err(Failure::usage("a `host` is known by its `host_cert`: give it")),
        (None, None) if identity.is_none() => Ok(None),
        (None, _) => Err(Failure::usage("certificates go with a `host`")),
    }
}

fn check_numbers(rate: Option<u32>, limit_bits: u32) -> Result {
    if rate.is_some_and(|rate| rate == 0 || rate > QUERIES_PER_SECOND_MAX) {
        return Err(Failure::usage(format!("`rate` is from 1 to {QUERIES_PER_SECOND_MAX}")));
    }
    if !(4..=128).contains(&limit_bits) {
        return Err(Failure::usage("`limit_bits` is from 4 to 128"));
    }
    Ok(())
}

fn choice(name: &str) -> Result<Choice> {
    match name {
        "benes" => Ok(Choice::Benes),
        "paper" => Ok(Choice::Paper),
        _ => Err(Failure::usage(format!("there is no kernel `{name}`: benes, paper"))),
    }
}

fn durability_of(name: &str) -> Result<Durability> {
    match name {
        "power" => Ok(Durability::Power),
        "process" => Ok(Durability::Process),
        _ => Err(Failure::usage(format!("there is no durability `{name}`: power, process"))),
    }
}

fn owned(object: &Bound<'_, PyAny>) -> Result<Vec<u8>> {
    Ok(InputBuffer::of(object)?.as_slice()?.to_vec())
}

fn missing(name: &Bound<'_, PyAny>) -> Failure {
    PyKeyError::new_err(name.clone().unbind()).into()
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::OutOfRange { .. } => Self::Kind(FailureKind::Range, error.to_string()),
            // A name or a value that is too long.
            Error::Malformed(what) => Self::usage(what),
            _ => failure(&error).into(),
        }
    }
}
