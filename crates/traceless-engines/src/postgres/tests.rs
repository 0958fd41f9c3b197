use super::*;
use crate::conformance::{block_on, conforms, waits_for_restarts};
use crate::servers::{
    TestServer, as_user, folder_of_user, free_port, give_to_user, program, start,
};

/// A server with a user `postgres` that has the password `secret`.
pub fn server(options: &[&str]) -> TestServer {
    let (folder, port) = (folder_of_user(), free_port());
    let (data, password) = (folder.path().join("data"), folder.path().join("password"));
    std::fs::write(&password, "secret").unwrap();
    give_to_user(&password);
    let made = as_user(&program("initdb"))
        .args(["--auth", "trust", "--username", "postgres", "--no-sync", "--pwfile"])
        .arg(&password)
        .arg("-D")
        .arg(&data)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut command = as_user(&program("postgres"));
    command.current_dir(folder.path()).arg("-D").arg(&data).args(options);
    command.args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k"]).arg(folder.path());
    start(command, port, folder)
}

fn url(server: &TestServer) -> String {
    format!("postgres://postgres@127.0.0.1:{}/postgres", server.port)
}

fn store(number: u32) -> StoreName {
    StoreName::parse(&format!("store-{number}")).unwrap()
}

/// Waits until the server answers statements: it listens before that.
fn engine(server: &TestServer, number: u32) -> PostgresEngine {
    let engine = PostgresEngine::new(&url(server), &TlsOptions::default(), store(number)).unwrap();
    block_on(crate::retry::persist(PATIENCE, || engine.load())).unwrap();
    engine
}

#[test]
fn a_database_conforms() {
    let postgres = server(&[]);
    conforms(|number, _| engine(&postgres, number));
}

#[test]
fn a_restart_of_the_server_is_waited_for() {
    // The server's default would lose commits.
    let postgres = server(&["-c", "synchronous_commit=off"]);
    let engine = engine(&postgres, 1);
    waits_for_restarts(postgres, engine);
}

#[test]
fn lasting_failures_differ_from_passing_ones() {
    let postgres = server(&[]);
    drop(engine(&postgres, 1));
    let load = |url: String| {
        let engine = PostgresEngine::new(&url, &TlsOptions::default(), store(1)).unwrap();
        block_on(engine.load()).unwrap_err()
    };
    let wrong = load(format!("{}s", url(&postgres)));
    assert!(!wrong.is_passing && wrong.message.contains("postgress"), "{wrong:?}");
    let wrong = load(url(&postgres).replace("postgres@", "nobody@"));
    assert!(!wrong.is_passing && wrong.message.contains("nobody"), "{wrong:?}");
    let away = load(format!("postgres://postgres@127.0.0.1:{}/postgres", free_port()));
    assert!(away.is_passing, "{away:?}");
    assert!(PostgresEngine::new("postgres://a:b:c/", &TlsOptions::default(), store(1)).is_err());
}
