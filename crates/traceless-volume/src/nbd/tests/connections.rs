use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::nbd::CONNECTIONS_MAX;

/// Long enough for a forbidden event to happen.
const A_WHILE: Duration = Duration::from_millis(60);

struct Scene {
    probe: Arc<Probe>,
    running: Running,
    path: std::path::PathBuf,
    _folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("socket");
        let probe = Arc::new(Probe::default());
        let running = Running::on_unix(&path, probe.clone());
        Self { probe, running, path, _folder: folder }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).unwrap()
    }

    fn client(&self) -> Client<UnixStream> {
        Client::ready(self.connect(), false)
    }

    /// A client with a write that the device does not finish, and another write after it.
    fn stuck_client(&self) -> Client<UnixStream> {
        let mut client = self.client();
        let stuck = [request(0, cmd::WRITE, 0, 1), vec![Probe::STUCK]].concat();
        let behind = [request(0, cmd::WRITE, 0, 1), vec![2]].concat();
        // Sent later, so that they are not executed together.
        client.send(&stuck);
        self.probe.wait_for(1);
        client.send(&behind);
        client
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A failed test must not leave the server waiting.
        self.probe.release();
    }
}

fn write(first: u8) -> Call {
    Call::Write { at: 0, first, len: 1 }
}

#[test]
fn writes_of_a_dead_connection_never_follow_writes_of_a_new_one() {
    let scene = Scene::new();
    drop(scene.stuck_client());

    let mut newcomer = scene.client();
    newcomer.send(&[request(0, cmd::WRITE, 0, 1), vec![3]].concat());
    std::thread::sleep(A_WHILE);
    assert_eq!(scene.probe.log(), [write(Probe::STUCK)], "the newcomer waits for the stuck write");

    scene.probe.release();
    newcomer.reply(0).unwrap();
    std::thread::sleep(A_WHILE);
    assert_eq!(scene.probe.log(), [write(Probe::STUCK), write(3)], "the write behind is fenced");
}

#[test]
fn a_newcomer_waits_for_all_that_the_dead_connection_executes_together() {
    let scene = Scene::new();
    let mut dead = scene.client();
    let writes = [Probe::STUCK, 2].map(|byte| [request(0, cmd::WRITE, 0, 1), vec![byte]].concat());
    dead.send(&writes.concat());
    scene.probe.wait_for(1);
    drop(dead);
    let mut newcomer = scene.client();
    newcomer.send(&[request(0, cmd::WRITE, 0, 1), vec![3]].concat());
    std::thread::sleep(A_WHILE);
    assert_eq!(scene.probe.log(), [write(Probe::STUCK)]);
    scene.probe.release();
    newcomer.reply(0).unwrap();
    assert_eq!(scene.probe.log(), [write(Probe::STUCK), write(2), write(3)]);
}

#[test]
fn every_newcomer_waits_for_the_dead() {
    let scene = Scene::new();
    drop(scene.stuck_client());
    let mut newcomers = [scene.client(), scene.client()];
    for newcomer in &mut newcomers {
        newcomer.send(&[request(0, cmd::WRITE, 0, 1), vec![3]].concat());
    }
    std::thread::sleep(A_WHILE);
    assert_eq!(scene.probe.log(), [write(Probe::STUCK)]);
    scene.probe.release();
    for newcomer in &mut newcomers {
        newcomer.reply(0).unwrap();
    }
    assert_eq!(scene.probe.log(), [write(Probe::STUCK), write(3), write(3)]);
}

#[test]
fn a_live_connection_is_left_alone() {
    let scene = Scene::new();
    let mut slow = scene.stuck_client();
    let mut newcomer = scene.client();
    newcomer.write(0, &[3]).unwrap();
    scene.probe.release();
    slow.reply(0).unwrap();
    slow.reply(0).unwrap();
    assert_eq!(scene.probe.log(), [write(Probe::STUCK), write(3), write(2)]);
}

#[test]
fn a_flush_covers_what_other_connections_wrote() {
    let scene = Scene::new();
    let mut clients = [scene.client(), scene.client()];
    clients[0].write(0, &[1]).unwrap();
    clients[1].plain(0, cmd::FLUSH, 0, 0).unwrap();
    assert_eq!(scene.probe.log(), [write(1), Call::Flush]);
}

#[test]
fn shutdown_finishes_the_current_request_and_wakes_the_idle() {
    let mut scene = Scene::new();
    let mut idle = scene.client();
    let mut undecided = Client::greet(scene.connect());
    let mut silent = scene.connect();
    let mut busy = scene.stuck_client();

    scene.running.handle.shutdown();
    assert!(idle.at_end());
    assert!(undecided.at_end());
    let mut greeting = Vec::new();
    silent.read_to_end(&mut greeting).unwrap();
    scene.probe.release();
    busy.reply(0).unwrap();
    assert!(busy.at_end(), "the next request is not executed");
    scene.running.stop().unwrap().unwrap();
    assert_eq!(scene.probe.log(), [write(Probe::STUCK)]);
    assert!(!scene.path.exists());
}

#[test]
fn shutdown_does_not_wait_for_clients_that_take_no_replies() {
    let mut scene = Scene::new();
    let mut client = scene.client();
    client.0.set_nonblocking(true).unwrap();
    // Sends requests until neither requests nor replies fit into the sockets any more.
    let mut full = false;
    while !full {
        while client.0.write_all(&request(0, cmd::READ, 0, 1 << 20)).is_ok() {}
        std::thread::sleep(A_WHILE);
        full = client.0.write_all(&request(0, cmd::READ, 0, 1 << 20)).is_err();
    }
    scene.running.stop().unwrap().unwrap();
}

#[test]
fn shutdown_before_the_start_is_not_lost() {
    let folder = TempDir::new().unwrap();
    let endpoint = Endpoint::Unix(folder.path().join("socket"));
    let server = Server::bind(endpoint, &Options::default()).unwrap();
    server.handle().clone().shutdown();
    let device: Arc<dyn Device> = Arc::new(Probe::default());
    server.run(&device).unwrap();
}

#[test]
fn connections_are_limited_and_places_become_free() {
    let scene = Scene::new();
    // A client with an answer has negotiated, so it does not give way to a newcomer.
    let answered = |_| {
        let mut client = scene.client();
        client.send(&request(0, cmd::FLUSH, 0, 0));
        client.reply(0).unwrap();
        client
    };
    let mut clients: Vec<_> = (0..CONNECTIONS_MAX).map(answered).collect();
    assert!(Client(scene.connect()).at_end(), "one too many");
    let mut last = clients.pop().unwrap();
    last.send(&request(0, cmd::DISC, 0, 0));
    assert!(last.at_end());
    // The place is free a moment after the connection is closed.
    while Client(scene.connect()).at_end() {
        std::thread::yield_now();
    }
    drop(clients);
}

#[test]
fn a_negotiating_client_gives_way_to_a_newcomer() {
    let scene = Scene::new();
    let mut working = scene.client();
    let mut silent: Vec<_> = (1..CONNECTIONS_MAX).map(|_| Client::greet(scene.connect())).collect();
    let mut newcomer = scene.client();
    assert_eq!(newcomer.read(0, 1), Ok(vec![7]));
    assert_eq!(working.read(0, 1), Ok(vec![7]), "in transmission a place is kept");
    assert!(silent.remove(0).at_end(), "the oldest gave way");
    silent[0].go();
    assert_eq!(silent[0].read(0, 1), Ok(vec![7]), "nobody else did");
    // A client that fills all places without negotiating keeps no other client out.
    let _flood: Vec<_> = (0..3 * CONNECTIONS_MAX).map(|_| scene.connect()).collect();
    let mut late = scene.client();
    assert_eq!(late.read(0, 1), Ok(vec![7]));
    assert_eq!(newcomer.read(0, 1), Ok(vec![7]));
}

#[test]
fn a_negotiation_byte_by_byte_ends_in_time() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let options = Options { negotiation_time: SHORT, ..Options::default() };
    let server = Server::bind(Endpoint::Unix(path.clone()), &options).unwrap();
    let _running = Running::start(server, Arc::new(Probe::default()));
    let mut done = Client::ready(UnixStream::connect(&path).unwrap(), false);
    let mut slow = Client::greet(UnixStream::connect(&path).unwrap());
    let option = option_bytes(opt::LIST, &[]);
    assert!(trickle(&mut slow.0, option.into_iter().cycle().take(400)));
    assert_eq!(done.read(0, 1), Ok(vec![7]), "in transmission there is no deadline");
}

#[test]
fn a_panic_of_the_device_ends_the_server() {
    let mut scene = Scene::new();
    let mut client = scene.client();
    client.send(&[request(0, cmd::WRITE, 0, 1), vec![Probe::PANIC]].concat());
    assert!(client.at_end());
    assert!(scene.running.thread.take().unwrap().join().is_err(), "and is passed on");
    assert!(!scene.path.exists());
}
