use super::*;
use crate::channel::Sender;
use crate::enclave::{Evictor, WORKING_SET_MAX};
use crate::enclave_orders::Eviction;
use crate::gateway::testing::{BLOCK, params};
use crate::gateway::{Gateway, Keys};
use crate::host::HostedStore;
use crate::kernel::{Choice, Network};
use crate::params::Params;
use crate::store::MemStore;
use crate::tee::{Policy, verify};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use traceless_core::rng::{Rng, SeededRng, System};
use traceless_core::seal::Secret;

/// The variable that gives this program a role when a test starts it.
const ROLE: &str = "TRACELESS_TEST_ROLE";

/// This program, in a role.
pub fn this_program(role: &str) -> Program {
    Program {
        path: std::env::current_exe().unwrap(),
        arguments: ["--exact", "process::tests::is_started_by_other_tests", "--nocapture"]
            .map(OsString::from)
            .to_vec(),
        environment: vec![(ROLE.into(), role.into())],
    }
}

/// Does nothing unless another test starts it.
#[test]
fn is_started_by_other_tests() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "enclave" {
        let _ = run();
        std::process::exit(0);
    }
    let parent = rustix::process::getppid().unwrap();
    confine::confine().unwrap();
    // The planted faults: each tries to leave the confinement.
    match &role[..] {
        "connect" => drop(std::net::TcpStream::connect("127.0.0.1:1")),
        "fork" => drop(Command::new("true").spawn()),
        "open" => assert!(std::fs::File::open("/etc/hostname").is_err()),
        "kill" => drop(kill_process(parent, Signal::CONT)),
        // No fault: only work that an enclave does.
        _ => std::thread::spawn(|| drop(vec![1_u8; 9 << 20])).join().unwrap(),
    }
    std::process::exit(7);
}

#[test]
fn a_confined_process_can_only_compute() {
    const SIGSYS: i32 = libc::SIGSYS;
    let end = |role: &str| {
        let program = this_program(role);
        let mut command = Command::new(program.path);
        command.args(program.arguments).envs(program.environment);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
    };
    for role in ["connect", "fork", "kill"] {
        assert_eq!(end(role).signal(), Some(SIGSYS), "{role}");
    }
    for role in ["open", "compute"] {
        assert_eq!(end(role).code(), Some(7), "{role}");
    }
}

fn open(seed: u64) -> (Gateway, Arc<HostedStore<MemStore, EnclaveProcess>>) {
    let (params, mut rng) = (params(2000), SeededRng::new(seed));
    let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
    let mut nonce = [0; 16];
    rng.fill(&mut nonce);
    let (starting, evidence) = Starting::start(&this_program("enclave"), &nonce).unwrap();
    let attested = verify(&evidence, &nonce, &Policy::Simulated).unwrap();
    assert_eq!(attested.what, "simulated, in a process");
    let sealed = keys.provision(&params, Choice::Benes).seal(&attested).unwrap();
    let g = params.geometry;
    let enclave = starting.provision(&g, &sealed).unwrap();
    let host = Arc::new(HostedStore::new(g, MemStore::new(g), enclave));
    let session = (&attested.gateway, &attested.enclave);
    let rng = Box::new(rng);
    let gateway =
        Gateway::open(params, &keys, Choice::Benes, host.clone(), session, None, rng).unwrap();
    (gateway, host)
}

#[test]
fn an_enclave_process_behaves_as_an_array() {
    let (mut gateway, host) = open(1);
    let mut rng = SeededRng::new(2);
    let mut array = vec![0_u8; 2000];
    for version in 0..6000_u32 {
        let id = rng.below(2000);
        if rng.below(2) == 0 {
            array[id as usize] = version as u8;
            gateway.put(id, &[version as u8; BLOCK]).unwrap();
        } else {
            assert_eq!(gateway.get(id).unwrap(), [array[id as usize]; BLOCK]);
        }
    }
    assert!(gateway.counts().rounds > 10);
    // The end of the enclave's process is reported as a lost session.
    host.enclave().end();
    let lost = (0..2000).find_map(|id| gateway.get(id).err());
    assert!(matches!(lost, Some(Error::SessionLost)), "{lost:?}");
}

/// A leaf of a 20 GB tree with blocks of 8 KB: old and new version are more than an enclave's
/// memory.
#[test]
fn the_enclave_never_holds_a_whole_node() {
    let params = Params::new((20 << 30) / 8192, 8192, 32).unwrap();
    let g = params.geometry;
    let keys = Keys::new(&Secret::from_bytes([1; 32]), &[7; 16]);
    let (starting, evidence) = Starting::start(&this_program("enclave"), &[3; 16]).unwrap();
    let attested = verify(&evidence, &[3; 16], &Policy::Simulated).unwrap();
    let sealed = keys.provision(&params, Choice::Benes).seal(&attested).unwrap();
    let enclave = starting.provision(&g, &sealed).unwrap();
    let shared = keys.shared(&params, Choice::Benes);
    let session = shared.session(&attested.gateway, &attested.enclave);
    let mut orders = Sender::new(&session.evict, Box::new(System));
    // Receives the same orders, and has the whole node.
    let mut evictor = Evictor::new(&shared, &session).unwrap();
    let layer = g.layers - 1;
    let (mut node, mut new_node) = (vec![0; g.node_len(layer)], vec![0; g.node_len(layer)]);
    assert!(2 * node.len() > WORKING_SET_MAX, "{}", node.len());
    let there: Vec<u32> = (0..g.slots(layer) as u32).rev().collect();
    for attempt in 1..4 {
        let control = Network::new(there.len()).route(&there);
        let (node_number, before) = (g.node(layer, 0), attempt - 1);
        let (round, in_round, node_of_order, zeroed) = (0, false, node_number, Vec::new());
        let node_number = node_of_order;
        let order =
            Eviction { round, node: node_number, in_round, before, attempt, zeroed, control };
        let order = orders.seal(&order.encode());
        let mut expected = vec![0; node.len()];
        let whole =
            NodeBytes { node: &node, carried: &[], new_node: &mut expected, new_carried: &mut [] };
        evictor.evict(&mut order.clone(), whole).unwrap();
        let bytes =
            NodeBytes { node: &node, carried: &[], new_node: &mut new_node, new_carried: &mut [] };
        let damaged = enclave.evict(&order, bytes).unwrap();
        assert!(damaged.is_empty());
        assert!(new_node == expected, "each part is in its slot");
        std::mem::swap(&mut node, &mut new_node);
    }
    let process = enclave.process_id().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: usize = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(most << 10 < WORKING_SET_MAX, "{most} KiB");
}

#[test]
fn a_key_for_another_enclave_is_refused() {
    let keys = Keys::new(&Secret::from_bytes([1; 32]), &[7; 16]);
    let start = || Starting::start(&this_program("enclave"), &[3; 16]).unwrap();
    let ((one, _), (_other, evidence)) = (start(), start());
    let attested = verify(&evidence, &[3; 16], &Policy::Simulated).unwrap();
    let sealed = keys.provision(&params(2000), Choice::Benes).seal(&attested).unwrap();
    let refused = one.provision(&params(2000).geometry, &sealed);
    assert!(matches!(refused, Err(Error::Unauthentic)));
}
