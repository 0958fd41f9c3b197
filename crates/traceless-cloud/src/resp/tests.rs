//! The protocol over sockets, in front of a small gateway.

use super::*;
use crate::gateway::testing::in_memory;
use crate::shared::{Metrics, Wall};
use shared_commands::Group;
use traceless_core::clock::{Clock, SimulatedClock};

/// Sends bytes to a fresh server, and reads until it closes.
fn answers(bytes: &[u8]) -> String {
    answers_with(bytes, Options::default(), Arc::new(Wall))
}

fn answers_with(bytes: &[u8], options: Options, wall: Arc<dyn Clock>) -> String {
    answers_of(2000, bytes, options, wall)
}

/// Uses a server with `blocks` blocks.
fn answers_of(blocks: u64, bytes: &[u8], options: Options, wall: Arc<dyn Clock>) -> String {
    let listener = listen::bind("127.0.0.1:0", Clients::Authenticated).unwrap();
    let address = listener.local_addr().unwrap();
    let front =
        Arc::new(SharedGateway::new(in_memory(blocks, 1), Arc::new(Metrics::default()), wall));
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, &front, options, &stop));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream.write_all(b"QUIT\r\n").unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        stop.request();
        server.join().unwrap().unwrap();
        answers
    })
}

fn replies(commands: &[&str]) -> Vec<String> {
    let replies = answers((commands.join("\r\n") + "\r\n").as_bytes());
    replies.lines().map(str::to_owned).collect()
}

#[test]
fn values_are_set_read_and_removed() {
    let commands = "PING\r\nSET a 1\r\nGET a\r\nGET b\r\nSET a 2 NX\r\nSET a 22 XX\r\n\
        STRLEN a\r\nMSET c 3 d 4\r\nMGET a b c\r\nEXISTS a b c a\r\nDEL a b\r\nDBSIZE\r\n\
        TTL c\r\nTTL a\r\n";
    let want = "+PONG\r\n+OK\r\n$1\r\n1\r\n$-1\r\n$-1\r\n+OK\r\n\
        :2\r\n+OK\r\n*3\r\n$2\r\n22\r\n$-1\r\n$1\r\n3\r\n:3\r\n:1\r\n:2\r\n\
        :-1\r\n:-2\r\n+OK\r\n";
    assert_eq!(answers(commands.as_bytes()), want);
}

#[test]
fn numbers_are_added_to_and_bytes_appended() {
    let lines = replies(&[
        "INCR n",
        "INCRBY n 41",
        "DECR n",
        "DECRBY n 40",
        "GET n",
        "SET w word",
        "INCR w",
        "INCRBY n 9223372036854775807",
        "APPEND w s",
        "APPEND v new",
        "GET w",
        "GETDEL w",
        "GET w",
        "GETSET v x",
        "SETNX v y",
        "SETNX z y",
        "SET v q GET",
        "TYPE v",
        "TYPE w",
        "KEYS ?",
    ]);
    let text = lines.join(" ");
    let wrong = "-ERR value is not an integer or out of range";
    assert_eq!(
        text,
        format!(
            ":1 :42 :41 :1 $1 1 +OK {wrong} {wrong} :5 :3 $5 words $5 words $-1 \
             $3 new :0 :1 $1 x +string +none *3 $1 n $1 v $1 z +OK"
        )
    );
}

#[test]
fn values_expire() {
    let clock = Arc::new(SimulatedClock::default());
    clock.advance(1_000_000);
    let one = |commands: &[&str]| {
        let bytes = commands.join("\r\n") + "\r\n";
        answers_with(bytes.as_bytes(), Options::default(), clock.clone()).replace("\r\n", " ")
    };
    assert_eq!(
        one(&[
            "SET a 1 EX 10",
            "TTL a",
            "PTTL a",
            "EXPIRETIME a",
            "SET a 2 KEEPTTL",
            "TTL a",
            "SET a 3",
            "TTL a",
            "EXPIRE a 5",
            "EXPIRE a 9 LT",
            "EXPIRE a 9 GT",
            "PTTL a",
            "PERSIST a",
            "PERSIST a",
            "TTL a",
            "PEXPIREAT a 1000500",
            "GETEX a PX 70",
            "PTTL a",
            "EXPIRE none 5",
            "SETEX b 7 x",
            "TTL b",
            "APPEND b y",
            "TTL b",
            "EXPIRE b -1",
            "GET b",
            "SET c 1 EX 0",
            "SET c 1 EX 5 PX 5",
            "EXPIRE a x",
            "DBSIZE",
        ]),
        "+OK :10 :10000 :1010 +OK :10 +OK :-1 :1 :0 :1 :9000 :1 :0 :-1 :1 $1 3 :70 :0 +OK :7 :2 \
         :7 :1 $-1 -ERR syntax error -ERR syntax error -ERR invalid expire time :1 +OK "
    );
    // After the clock advances, expired values are gone for all commands, and no query was sent.
    let front = SharedGateway::new(in_memory(2000, 1), Arc::new(Metrics::default()), clock.clone());
    let served = SharedService::new(Arc::new(front), RespUsers::of_default(None));
    let mut session = RespSession::new(&served);
    let mut send = |command: &str| {
        let words = command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        session.answer(&words).0
    };
    assert_eq!(send("SET a 1 PX 100"), Reply::Simple("OK"));
    assert_eq!(send("SET b 1 PX 300"), Reply::Simple("OK"));
    let queries = || served.front.inspect(|gateway| gateway.counts().queries);
    let before = queries();
    clock.advance(99);
    assert_eq!(send("PTTL a"), Reply::Integer(1));
    clock.advance(1);
    assert_eq!((send("DBSIZE"), send("EXISTS a b")), (Reply::Integer(1), Reply::Integer(1)));
    assert_eq!((send("GET a"), send("PTTL b")), (Reply::Null, Reply::Integer(200)));
    assert_eq!(queries(), before);
    // A value that is set together with another one loses its expiry, too.
    assert_eq!(send("SET c 1 PX 400"), Reply::Simple("OK"));
    assert_eq!(served.expiring(), 2);
    assert_eq!(send("MSET c 2 d 3"), Reply::Simple("OK"));
    assert_eq!((served.expiring(), send("TTL c")), (1, Reply::Integer(-1)));
}

#[test]
fn values_with_options_are_set_and_removed() {
    assert_eq!(
        replies(&[
            "SET a 1 NX EX 100",
            "SET a 2 NX",
            "SET a 3 XX KEEPTTL",
            "TTL a",
            "SET b 1 XX",
            "SETNX a 4",
            "SETNX b 4",
            "SET b 5 PX 100000 XX",
            "PERSIST b",
            "SET b 6 GET",
            "DEL a b a none",
            "DEL a",
            "UNLINK",
            "DBSIZE",
            "SET a 1 EX 100 KEEPTTL",
        ])
        .join(" "),
        "+OK $-1 +OK :100 $-1 :0 :1 +OK :1 $1 5 :2 :0 -ERR unknown command or wrong arguments: \
         'UNLINK' :0 -ERR syntax error +OK"
    );
}

#[test]
fn commands_on_other_types_are_refused_by_their_type() {
    let refused = ["HSET h f v", "LPUSH l v", "sadd s v", "ZADD z 1 v", "XADD s * f v", "EVAL 1 0"];
    let lines = replies(&refused);
    for (line, what) in
        lines.iter().zip(["hashes", "lists", "sets", "sorted sets", "streams", "scripts"])
    {
        let want = format!("is refused: this server has no {what}, only strings");
        assert!(line.starts_with("-ERR '") && line.ends_with(&want), "{line}");
    }
    assert_eq!(replies(&["NOSUCH x"])[0], "-ERR unknown command or wrong arguments: 'NOSUCH'");
}

/// At a constant rate one connection's batch would delay all other connections.
#[test]
fn pipelined_commands_take_one_tick_each_at_a_constant_rate() {
    let words = |command: &str| -> protocol::Command {
        command.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    };
    let pipeline = ["GET a", "get b", "GET c", "SET a 1", "SET b 2", "GET a b"].map(words);
    let together = |beats: bool| {
        let mut gateway = in_memory(100, 1);
        if beats {
            gateway.start_constant_rate(500, Arc::new(SimulatedClock::default())).unwrap();
        }
        let front = SharedGateway::new(gateway, Arc::new(Metrics::default()), Arc::new(Wall));
        let served = SharedService::new(Arc::new(front), RespUsers::of_default(None));
        let len = |from: usize| Group::take(&pipeline[from..], &served).map(|group| group.len());
        [0, 3, 5].map(len)
    };
    assert_eq!((together(false), together(true)), ([Some(3), Some(2), None], [None; 3]));
}

#[test]
fn a_password_is_required() {
    let with_password = |commands: &str| {
        let users = RespUsers::of_default(Some(Password::new(b"open sesame").unwrap()));
        let options = Options { users, ..Options::default() };
        answers_with(commands.as_bytes(), options, Arc::new(Wall)).replace("\r\n", "|")
    };
    let refused = with_password("GET a\r\nPING\r\nAUTH wrong\r\nHELLO 3\r\nGET a\r\n");
    assert_eq!(refused.matches("-NOAUTH").count(), 4, "{refused}");
    assert!(refused.contains("-WRONGPASS"));
    let quoted = "*2\r\n$4\r\nAUTH\r\n$11\r\nopen sesame\r\nGET a\r\n";
    assert_eq!(with_password(quoted), "+OK|$-1|+OK|");
    let hello = "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n\
        $11\r\nopen sesame\r\nGET a\r\n";
    assert!(with_password(hello).ends_with("_|+OK|"));
    let front = SharedGateway::new(in_memory(10, 1), Arc::new(Metrics::default()), Arc::new(Wall));
    let users = RespUsers::of_default(Some(Password::new(b"open sesame").unwrap()));
    let served = SharedService::new(Arc::new(front), users);
    let mut session = RespSession::new(&served);
    let room_for = |len: usize| {
        let command = format!("*1\r\n${len}\r\n{}\r\n", "x".repeat(len));
        protocol::read(&mut command.as_bytes(), session.command_len_max()).is_ok()
    };
    assert!(room_for(10_000) && !room_for(60_000), "a stranger's commands are short");
    session.answer(&vec![b"AUTH".to_vec(), b"open sesame".to_vec()]);
    assert!(session.command_len_max() > 64 << 20);
    assert!(answers(b"AUTH x\r\n").starts_with("-ERR this server asks for no password"));
}

#[test]
fn users_have_the_rights_of_their_rules() {
    let lines = replies(&[
        "SET own:1 x",
        "SET other y",
        "ACL SETUSER ann on >open-sesame ~own:* +@all -@dangerous -incr",
        "ACL WHOAMI",
        "ACL GETUSER none",
        "AUTH ann wrong",
        "AUTH ann open-sesame",
        "ACL WHOAMI",
        "GET own:1",
        "GET other",
        "MGET own:1 other",
        "INCR own:2",
        "KEYS *",
        "ACL LIST",
        "MULTI",
        "GET own:1",
        "GET other",
        "EXEC",
        "PING",
    ]);
    let denied = "-NOPERM User ann has no permissions to run the";
    let key = "-NOPERM No permissions to access a key";
    let text = lines.join(" ");
    let want = format!(
        "+OK +OK +OK $7 default $-1 -WRONGPASS invalid username-password pair or user is \
         disabled. +OK $3 ann $1 x {key} {key} {denied} 'incr' command {denied} 'keys' command \
         {denied} 'acl' command +OK +QUEUED {key} -EXECABORT Transaction discarded because of \
         previous errors. +PONG +OK"
    );
    // ACL WHOAMI is slow, and neither dangerous nor of administrators.
    assert_eq!(text, want);
}

#[test]
fn rights_change_while_clients_are_connected() {
    let front = SharedGateway::new(in_memory(50, 1), Arc::new(Metrics::default()), Arc::new(Wall));
    let served = SharedService::new(Arc::new(front), RespUsers::of_default(None));
    served.users.allow_open(true);
    let command = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let (mut admin, mut client) = (RespSession::new(&served), RespSession::new(&served));
    let mut order = |text: &str| admin.answer(&command(text)).0;
    let ok = Reply::Simple("OK");
    assert_eq!(order("ACL SETUSER ann on nopass ~* +@all"), ok);
    let mut request = |text: &str| {
        let (reply, ends) = client.answer(&command(text));
        let text = match reply {
            Reply::Error(text) => text.split(' ').next().unwrap_or_default().to_owned(),
            _ => String::new(),
        };
        (text, ends)
    };
    let (right, denied) = ((String::new(), false), ("NOPERM".to_owned(), false));
    assert_eq!(request("AUTH ann x"), right);
    assert_eq!(request("SET a 1"), right);
    for text in ["MULTI", "SET a 2"] {
        assert_eq!(request(text), right);
    }
    assert_eq!(order("ACL SETUSER ann -@write"), ok);
    assert_eq!(request("EXEC"), denied);
    assert_eq!((request("GET a"), request("SET a 3")), (right.clone(), denied));
    let mut replies = Vec::new();
    let pipeline = [command("GET a"), command("GET a"), command("DEL a")];
    RespSession::new(&served).answer_all(&pipeline[..2], &mut replies).unwrap();
    client.answer_all(&pipeline, &mut replies).unwrap();
    let replies = String::from_utf8(replies).unwrap();
    assert_eq!(replies.matches("$1\r\n1\r\n").count(), 4, "{replies}");
    assert!(replies.contains("'del' command"), "{replies}");
    assert_eq!(order("ACL DELUSER ann"), Reply::Integer(1));
    assert_eq!(order("ACL SETUSER ann on nopass ~* +@all"), ok);
    let (reply, ends) = client.answer(&command("GET a"));
    assert!(ends && matches!(reply, Reply::Error(text) if text.starts_with("NOAUTH")));
}

#[test]
fn users_are_described() {
    let digest = "a".repeat(64);
    let lines = replies(&[
        &format!("ACL SETUSER ann on #{digest} ~a* %R~b +@read -get +acl|whoami"),
        "ACL USERS",
        "ACL LIST",
        "ACL GETUSER ann",
        "ACL CAT transaction",
        "ACL CAT none",
        "ACL SETUSER ann +none",
        "ACL SETUSER ann >short",
        "ACL DELUSER default",
        "ACL DELUSER ann bob",
        "ACL SAVE",
        "ACL LOG",
    ]);
    let rules = "-@all +@read -get +acl|whoami";
    let text = lines.join("|");
    assert!(text.starts_with("+OK|*2|$3|ann|$7|default|*2|"), "{text}");
    let described = format!("user ann on #{digest} ~a* %R~b resetchannels {rules}");
    assert!(text.contains(&described) && text.contains("user default on nopass ~* "), "{text}");
    let got = format!("$5|flags|*1|$2|on|$9|passwords|*1|$64|{digest}|$8|commands|$29|{rules}|");
    assert!(text.contains(&got), "{text}");
    let errors: Vec<_> = lines.iter().filter(|line| line.starts_with("-ERR")).collect();
    for (error, part) in errors.iter().zip([
        "Unknown category 'none'",
        "modifier '+none': Unknown command or category name in ACL",
        "modifier '(password)'",
        "The 'default' user cannot be removed",
        "give --resp-users",
        "unknown subcommand",
    ]) {
        assert!(error.contains(part), "{error}");
    }
    assert!(errors.len() == 6 && text.contains("|:1|") && text.contains("|$7|unwatch|"), "{text}");
}

#[test]
fn names_are_listed_in_parts() {
    let set: String = (0..12).map(|i| format!("SET n{i:02} x\r\n")).collect::<Vec<_>>().concat();
    let scans = "SCAN 0 COUNT 5\r\nSCAN 1 COUNT 5 MATCH *6\r\nSCAN 2 COUNT 5\r\nSCAN 9\r\n";
    let replies = answers((set + scans).as_bytes());
    let replies = replies.strip_prefix(&"+OK\r\n".repeat(12)).unwrap();
    let names = |range: core::ops::Range<u8>| -> String {
        range.map(|i| format!("$3\r\nn{i:02}\r\n")).collect::<Vec<_>>().concat()
    };
    let want = format!(
        "*2\r\n$1\r\n1\r\n*5\r\n{}*2\r\n$1\r\n2\r\n*1\r\n{}*2\r\n$1\r\n0\r\n*2\r\n{}\
         -ERR invalid cursor\r\n+OK\r\n",
        names(0..5),
        names(6..7),
        names(10..12)
    );
    assert_eq!(replies, want);
}

#[test]
fn unknown_commands_are_errors() {
    let replies =
        answers(b"NONSENSE\r\nGET\r\nSET a 1 XY 5\r\nHELLO 4\r\nHELLO 3\r\nGET x\r\nSELECT 1\r\n");
    let lines: Vec<&str> = replies.lines().collect();
    assert!(lines[0].starts_with("-ERR unknown") && lines[1].starts_with("-ERR unknown"));
    assert!(lines[2].starts_with("-ERR syntax") && lines[3].starts_with("-NOPROTO"));
    assert!(replies.contains("%6\r\n") && replies.contains("_\r\n"), "{replies}");
    assert!(answers(b"*1\r\n$x\r\n").starts_with("-ERR Protocol error"));
    assert!(answers(b"INFO\r\n").contains("tee_protection:none"));
}

/// After a stop request all received commands are answered, then all connections are closed.
#[test]
fn stopping_finishes_running_commands() {
    let listener = listen::bind("127.0.0.1:0", Clients::Authenticated).unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = Arc::new(Metrics::default());
    let front = Arc::new(SharedGateway::new(in_memory(2000, 1), metrics, Arc::new(Wall)));
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, &front, Options::default(), &stop));
        let mut idle = TcpStream::connect(address).unwrap();
        let mut busy = TcpStream::connect(address).unwrap();
        let value = "x".repeat(50_000);
        busy.write_all(format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$50000\r\n{value}\r\n").as_bytes())
            .unwrap();
        // Wait until the command is being answered, or has been.
        while front.metrics().text().lines().all(|line| {
            !line.starts_with("traceless_bytes_total{direction=\"in\"") || line.ends_with(" 0")
        }) {
            std::thread::yield_now();
        }
        stop.request();
        let mut end = String::new();
        busy.read_to_string(&mut end).unwrap();
        assert_eq!(end, "+OK\r\n");
        assert_eq!(idle.read(&mut [0]).unwrap(), 0);
        server.join().unwrap().unwrap();
        assert!(TcpStream::connect(address).is_ok_and(|mut late| {
            // There is no server any more, although the socket is still open here.
            late.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            late.read(&mut [0]).is_err()
        }));
    });
}

/// Pipelined commands are answered as if they were sent one by one, in any combination.
#[test]
fn pipelined_commands_are_answered_in_order() {
    let lines = replies(&[
        "SET a 1",
        "SET b 2",
        "SET a 3",
        "GET a",
        "GET nothing",
        "GET b",
        "SET a 4 PX 100000",
        "SET a 5",
        "SET b 6",
        "PTTL a",
        "GET a",
        "SET c",
        "SET c 7",
        "SET d 8",
        "GET d",
    ]);
    let wrong = "-ERR unknown command or wrong arguments: 'SET'";
    assert_eq!(
        lines.join(" "),
        format!("+OK +OK +OK $1 3 $-1 $1 2 +OK +OK +OK :-1 $1 5 {wrong} +OK +OK $1 8 +OK")
    );
}

/// A command without room does not prevent the next ones.
#[test]
fn valid_commands_of_a_pipeline_run_despite_invalid_ones() {
    let large = "x".repeat(40_000);
    let commands = format!("SET a 1\r\nSET b {large}\r\nSET c 3\r\nGET a\r\nGET c\r\n");
    let answers = answers_of(500, commands.as_bytes(), Options::default(), Arc::new(Wall));
    let lines: Vec<&str> = answers.lines().collect();
    assert!(lines[1].starts_with("-ERR"), "{}", lines[1]);
    assert_eq!(lines[0], "+OK");
    assert_eq!(&lines[2..], ["+OK", "$1", "1", "$1", "3", "+OK"]);
}

/// Two connections to one server.
fn with_two(work: impl FnOnce(&mut dyn FnMut(&str) -> Reply, &mut dyn FnMut(&str) -> Reply)) {
    let front =
        SharedGateway::new(in_memory(2000, 1), Arc::new(Metrics::default()), Arc::new(Wall));
    let served = SharedService::new(Arc::new(front), RespUsers::of_default(None));
    let (mut one, mut other) = (RespSession::new(&served), RespSession::new(&served));
    let words =
        |command: &str| command.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    work(&mut |command| one.answer(&words(command)).0, &mut |command| {
        other.answer(&words(command)).0
    });
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

#[test]
fn transactions_run_as_a_whole() {
    with_two(|one, other| {
        assert_eq!(one("MULTI"), Reply::Simple("OK"));
        for command in
            ["SET a 1", "INCR a", "APPEND a 0", "MGET a b", "SETNX a 5", "DEL a b", "PING"]
        {
            assert_eq!(one(command), Reply::Simple("QUEUED"), "{command}");
        }
        assert_eq!(other("GET a"), Reply::Null);
        let replies = vec![
            Reply::Simple("OK"),
            Reply::Integer(2),
            Reply::Integer(2),
            Reply::Array(vec![bulk("20"), Reply::Null]),
            Reply::Integer(0),
            Reply::Integer(1),
            Reply::Simple("PONG"),
        ];
        assert_eq!(one("EXEC"), Reply::Array(replies));
        assert_eq!(other("EXISTS a"), Reply::Integer(0));
        // A command that fails does not end the transaction.
        for command in ["MULTI", "SET a word", "INCR a", "SET b 2 PX 100000", "PTTL b"] {
            one(command);
        }
        let Reply::Array(replies) = one("EXEC") else { panic!() };
        assert!(matches!(&replies[1], Reply::Error(text) if text.contains("not an integer")));
        assert!(matches!(replies[3], Reply::Integer(left) if left > 90_000));
        assert_eq!(other("MGET a b"), Reply::Array(vec![bulk("word"), bulk("2")]));
    });
}

#[test]
fn refused_transactions_change_nothing() {
    with_two(|one, _| {
        let error = |reply: Reply| match reply {
            Reply::Error(text) => text,
            other => panic!("{other:?}"),
        };
        assert!(error(one("EXEC")).contains("without MULTI"));
        assert!(error(one("DISCARD")).contains("without MULTI"));
        one("MULTI");
        assert!(error(one("MULTI")).contains("nested"));
        assert!(error(one("WATCH a")).contains("inside MULTI"));
        assert_eq!(one("SET a 1"), Reply::Simple("QUEUED"));
        assert!(error(one("LPUSH l 1")).contains("no lists"));
        assert!(error(one("EXEC")).starts_with("EXECABORT"));
        assert_eq!(one("GET a"), Reply::Null);
        for wrong in ["SET a", "INCR", "MGET", "SCAN 0", "KEYS *", "NONE"] {
            one("MULTI");
            one("SET a 1");
            assert!(error(one(wrong)).starts_with("ERR"), "{wrong}");
            assert!(error(one("EXEC")).starts_with("EXECABORT"), "{wrong}");
        }
        // A name that is too long ends it all; MSET is all or nothing, too.
        one("MULTI");
        one("SET a 1");
        one(&format!("MSET b 1 {} 2", "n".repeat(1025)));
        assert!(error(one("EXEC")).starts_with("EXECABORT"));
        assert_eq!((one("GET a"), one("GET b")), (Reply::Null, Reply::Null));
        assert!(error(one(&format!("WATCH {}", "n".repeat(1025)))).contains("1 KiB"));
        one("MULTI");
        one("SET a 1");
        assert_eq!(one("DISCARD"), Reply::Simple("OK"));
        assert_eq!(
            (one("GET a"), one("MULTI"), one("EXEC")),
            (Reply::Null, Reply::Simple("OK"), Reply::Array(Vec::new()))
        );
    });
}

#[test]
fn watched_names_end_a_transaction() {
    let changes =
        ["SET a 1", "INCR a", "DEL a", "EXPIRE a 100", "SET a 0", "SET b 1", "MSET a 0 c 1"];
    for change in changes {
        with_two(|one, other| {
            one("SET a 0");
            assert_eq!(one("WATCH a b"), Reply::Simple("OK"));
            other(change);
            one("MULTI");
            one("SET d 1");
            assert_eq!(one("EXEC"), Reply::NullArray, "{change}");
            assert_eq!(one("GET d"), Reply::Null);
            // The names are watched no longer.
            one("MULTI");
            one("SET d 1");
            assert_eq!(one("EXEC"), Reply::Array(vec![Reply::Simple("OK")]));
        });
    }
    for (before, unrelated) in [("WATCH a", "SET c 1"), ("WATCH a", "GET a"), ("UNWATCH", "INCR a")]
    {
        with_two(|one, other| {
            one("SET a 0");
            one("WATCH a");
            one(before);
            other(unrelated);
            one("MULTI");
            one("INCR a");
            assert!(matches!(one("EXEC"), Reply::Array(_)), "{unrelated}");
        });
    }
}

/// The blocks of a watched value are no other value's, so that a value that comes back is noticed.
#[test]
fn a_watched_value_that_comes_back_is_a_change() {
    with_two(|one, other| {
        one("SET a 0");
        one("WATCH a");
        for _ in 0..50 {
            other("SET a 1");
            other("DEL a");
            other("SET a 0");
        }
        one("MULTI");
        assert_eq!(one("EXEC"), Reply::NullArray);
    });
}

#[test]
fn pipelined_commands_are_queued() {
    let bytes = b"MULTI\r\nSET a 1\r\nSET b 2\r\nGET a\r\nEXEC\r\nGET b\r\n";
    let lines = answers(bytes);
    assert_eq!(
        lines,
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n+OK\r\n$1\r\n1\r\n\
         $1\r\n2\r\n+OK\r\n"
    );
}

/// What a transaction reads is bounded: no other client is answered meanwhile.
#[test]
fn transactions_that_read_too_much_change_nothing() {
    let front =
        SharedGateway::new(in_memory(2000, 1), Arc::new(Metrics::default()), Arc::new(Wall));
    let mut served = SharedService::new(Arc::new(front), RespUsers::of_default(None));
    served.transaction_len_max = 100_000;
    let mut session = RespSession::new(&served);
    let mut send = |command: &str| {
        session.answer(&command.split(' ').map(|word| word.as_bytes().to_vec()).collect()).0
    };
    let long = "x".repeat(30_000);
    send(&format!("SET a {long}"));
    for (count, is_refused) in [(3, false), (4, true)] {
        send("MULTI");
        send("SET b 1");
        for _ in 0..count {
            assert_eq!(send("GET a"), Reply::Simple("QUEUED"));
        }
        let reply = send("EXEC");
        assert_eq!(matches!(reply, Reply::Error(_)), is_refused);
        assert_eq!(send("DEL b"), Reply::Integer(i64::from(!is_refused)));
    }
    // The commands themselves are bounded, too.
    send("MULTI");
    let replies = [0, 1, 2, 3].map(|_| send(&format!("SET b {long}")));
    assert!(matches!(&replies[3], Reply::Error(text) if text.contains("64 MiB at most")));
    assert!(matches!(send("EXEC"), Reply::Error(_)));
}
