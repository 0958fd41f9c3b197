//! Objects over a small gateway, without the network.

use super::access::AccessKeys;
use super::bodies::BodyClaims;
use super::buckets::{self, BucketRequest};
use super::conditions::Conditions;
use super::listing::{ListRequest, page};
use super::names::ObjectPlace;
use super::note::{Headers, Note};
use super::object_info::{ObjectInfo, Part};
use super::objects::{self, RemovalRequest, Target};
use super::uploads;
use super::versions::Stamp;
use crate::gateway::size_class;
use crate::gateway::testing::{BLOCK, in_memory};
use crate::shared::{Metrics, SharedGateway, Wall};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use s3s::S3Result;
use s3s::dto::StreamingBlob;
use std::io;
use std::sync::Arc;
use traceless_core::rng::SeededRng;

fn front(blocks: u64) -> Arc<SharedGateway> {
    let front =
        SharedGateway::new(in_memory(blocks, 1), Arc::new(Metrics::default()), Arc::new(Wall));
    buckets::create_bucket(&front, "b", "ann", false).unwrap();
    Arc::new(front)
}

fn target(key: &str) -> Target {
    let stamp = Stamp { now: 5, salt: 0 };
    Target { place: ObjectPlace::new("b", key), conditions: Conditions::default(), stamp }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn body(pieces: Vec<Result<Vec<u8>, io::Error>>) -> StreamingBlob {
    let pieces = pieces.into_iter().map(|piece| piece.map(Bytes::from));
    StreamingBlob::wrap(stream::iter(pieces))
}

fn put(front: &Arc<SharedGateway>, key: &str, bytes: &[u8]) -> S3Result<String> {
    let pieces = bytes.chunks(37).map(|piece| Ok(piece.to_vec())).collect();
    put_body(front, key, body(pieces))
}

fn put_body(front: &Arc<SharedGateway>, key: &str, body: StreamingBlob) -> S3Result<String> {
    let note = Note::new(Headers::default(), None).unwrap();
    let announced = BodyClaims::default();
    run(objects::put(front.clone(), target(key), note, Some(body), announced)).map(|put| put.etag)
}

fn find(front: &SharedGateway, key: &str) -> S3Result<ObjectInfo> {
    front.inspect(|gateway| objects::find(gateway, &ObjectPlace::new("b", key), None))
}

async fn bytes_of(mut body: StreamingBlob) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    bytes
}

fn get(front: &Arc<SharedGateway>, key: &str) -> S3Result<Vec<u8>> {
    let known = find(front, key)?;
    run(async { Ok(bytes_of(objects::get(front.clone(), &known, &Part::Whole).await?).await) })
}

fn delete(front: &Arc<SharedGateway>, key: &str) {
    let request = RemovalRequest { target: target(key), version: None, bypass: false };
    run(objects::delete(front.clone(), request)).unwrap();
}

/// How many blocks were accessed: queries plus cache hits.
fn accesses(front: &SharedGateway) -> u64 {
    front.inspect(|gateway| gateway.counts().queries + gateway.counts().hits)
}

/// Runs `work`, and returns how many blocks it accessed.
fn cost<T>(front: &SharedGateway, work: impl FnOnce() -> T) -> (T, u64) {
    let before = accesses(front);
    let done = work();
    (done, accesses(front) - before)
}

#[test]
fn every_object_operation_costs_the_size_class() {
    let front = front(400);
    for blocks in [0, 1, 2, 9, 33, 34, 60] {
        for len in [(blocks * BLOCK).saturating_sub(5), blocks * BLOCK] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * i) as u8).collect();
            let class = size_class(blocks.max(1)) as u64;
            assert_eq!(cost(&front, || put(&front, "k", &bytes)).1, class, "{len}");
            let (read, read_cost) = cost(&front, || get(&front, "k").unwrap());
            assert!(read == bytes);
            assert_eq!(read_cost, class, "{len}");
            assert_eq!(cost(&front, || delete(&front, "k")).1, class, "{len}");
            assert!(get(&front, "k").is_err());
        }
    }
    assert_eq!(front.inspect(crate::gateway::Gateway::blocks_used), 0);
}

#[test]
fn listings_and_heads_send_no_queries() {
    let front = front(400);
    put(&front, "a/1", &[1; 500]).unwrap();
    put(&front, "a/2", &[2; 500]).unwrap();
    let ((), sent) = cost(&front, || {
        find(&front, "a/1").unwrap();
        assert!(find(&front, "none").is_err());
        let all = ListRequest {
            bucket: "b",
            prefix: "",
            delimiter: "/",
            after: "",
            len: 10,
            escaped: false,
        };
        assert_eq!(front.inspect(|gateway| page(gateway, &all)).unwrap().prefixes.len(), 1);
        buckets::create_bucket(&front, "c", "ann", false).unwrap();
        buckets::delete_bucket(&front, "c").unwrap();
        assert!(buckets::delete_bucket(&front, "b").is_err());
        delete(&front, "none");
        let place = || ObjectPlace::new("b", "k");
        let note = Note::default();
        let id = uploads::begin(&front, place(), note, &mut SeededRng::new(1)).unwrap();
        front.inspect(|gateway| uploads::find(gateway, &place(), &id).map(drop)).unwrap();
        assert!(
            front
                .inspect(|gateway| uploads::find(gateway, &ObjectPlace::new("b", "other"), &id))
                .is_err()
        );
    });
    assert_eq!(sent, 0);
}

#[test]
fn failed_uploads_leave_nothing_behind() {
    let front = front(50);
    let used = || front.inspect(crate::gateway::Gateway::blocks_used);
    let broken = body(vec![Ok(vec![1; 1000]), Err(io::Error::other("gone"))]);
    assert_eq!(put_body(&front, "k", broken).unwrap_err().code().as_str(), "IncompleteBody");
    assert_eq!(used(), 0);
    let full = put(&front, "k", &[1; 51 * BLOCK]).unwrap_err();
    assert_eq!((full.code().as_str(), used()), ("InsufficientStorage", 0));
    put(&front, "k", &[1; 20 * BLOCK]).unwrap();
    let condition =
        Conditions { matches_not: Some(s3s::dto::ETagCondition::Any), ..Conditions::default() };
    let again = objects::put(
        front.clone(),
        Target { conditions: condition, ..target("k") },
        Note::default(),
        Some(body(vec![Ok(vec![2; 100])])),
        BodyClaims::default(),
    );
    assert_eq!(run(again).err().unwrap().code().as_str(), "PreconditionFailed");
    assert_eq!(used(), 20);
}

#[test]
fn wrong_digests_are_refused() {
    let front = front(50);
    let announce = |announced: BodyClaims| {
        let body = Some(body(vec![Ok(b"hello".to_vec())]));
        let put = objects::put(front.clone(), target("k"), Note::default(), body, announced);
        run(put).map(|put| put.etag).map_err(|error| error.code().as_str().to_owned())
    };
    let md5 = |md5: &str| BodyClaims { md5: Some(md5.to_owned()), ..BodyClaims::default() };
    let right = "5d41402abc4b2a76b9719d911017c592";
    assert_eq!(announce(md5("XUFAKrxLKna5cZ2REBfFkg==")).unwrap(), right);
    assert_eq!(announce(md5("XUFAKrxLKna5cZ2REBfFkA==")).unwrap_err(), "BadDigest");
    assert_eq!(announce(md5("?")).unwrap_err(), "InvalidDigest");
    assert_eq!(
        announce(BodyClaims { len: Some(6), ..BodyClaims::default() }).unwrap_err(),
        "IncompleteBody"
    );
    let crc = |crc: &str| {
        let mut announced = BodyClaims::default();
        announced.checksum.checksum_crc32 = Some(crc.to_owned());
        announced
    };
    assert_eq!(announce(crc("NhCmhg==")).unwrap(), right);
    assert_eq!(announce(crc("NhCmhQ==")).unwrap_err(), "BadDigest");
}

/// A body that is sent while its object is replaced and removed has the old content.
#[test]
fn a_reader_sees_one_version() {
    let front = front(6000);
    let old: Vec<u8> = (0..300_000_u32).map(|i| (i / 7) as u8).collect();
    put(&front, "k", &old).unwrap();
    let known = find(&front, "k").unwrap();
    let read = run(async {
        let mut body = objects::get(front.clone(), &known, &Part::Whole).await.unwrap();
        drop(known);
        let mut read = body.next().await.unwrap().unwrap().to_vec();
        let replacing = front.clone();
        // A separate thread with its own runtime, because this one's thread is busy.
        std::thread::spawn(move || {
            put(&replacing, "k", &vec![9; 50_000]).unwrap();
            delete(&replacing, "k");
            put(&replacing, "k", &vec![8; 70_000]).unwrap();
        })
        .join()
        .unwrap();
        read.extend(bytes_of(body).await);
        read
    });
    assert!(read == old);
    assert!(get(&front, "k").unwrap() == vec![8; 70_000]);
}

#[test]
fn buckets_are_listed_in_pages() {
    let front = front(50);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    std::fs::write(&path, "ann secret-of-ann\nbob secret-of-bob c1=ro c3=rw\n").unwrap();
    let keys = AccessKeys::read(&path).unwrap();
    for bucket in ["c1", "c2", "c3"] {
        buckets::create_bucket(&front, bucket, "ann", false).unwrap();
    }
    let list = |id, prefix, len| {
        let (mut names, mut after) = (Vec::new(), String::new());
        loop {
            let request = BucketRequest { id, prefix, after: &after, len };
            let (page, next) = buckets::buckets(&front, &keys, &request).unwrap();
            assert!(page.len() <= len);
            names.extend(page.into_iter().map(|bucket| bucket.name.unwrap()));
            match next {
                Some(last) => after = last,
                None => return names.join(" "),
            }
        }
    };
    for len in [1, 2, 10] {
        assert_eq!(list("ann", "", len), "b c1 c2 c3");
        assert_eq!(list("ann", "c", len), "c1 c2 c3");
        assert_eq!(list("bob", "", len), "c1 c3");
    }
}

#[test]
fn a_bucket_is_created_again_by_its_owner_only() {
    let front = front(50);
    let create = |owner, is_locked| {
        let created = buckets::create_bucket(&front, "b", owner, is_locked);
        created.map_err(|error| error.code().as_str().to_owned())
    };
    assert_eq!(create("ann", false), Ok(()));
    assert_eq!(create("bob", false), Err("BucketAlreadyExists".to_owned()));
    assert_eq!(create("ann", true), Err("BucketAlreadyOwnedByYou".to_owned()));
}

#[test]
fn a_bucket_takes_its_unfinished_uploads_with_it() {
    let front = front(50);
    buckets::create_bucket(&front, "c", "ann", false).unwrap();
    let mut rng = SeededRng::new(1);
    for bucket in ["b", "c"] {
        let place = ObjectPlace::new(bucket, "k");
        let id = uploads::begin(&front, place, Note::default(), &mut rng).unwrap();
        let name = uploads::part_name(&id, 1).unwrap();
        let bytes = Some(body(vec![Ok(vec![1; 100])]));
        run(uploads::put_part(front.clone(), name, bytes, BodyClaims::default())).unwrap();
    }
    let used = || front.inspect(crate::gateway::Gateway::blocks_used);
    let both = used();
    buckets::delete_bucket(&front, "c").unwrap();
    assert_eq!(used() * 2, both);
    buckets::create_bucket(&front, "c", "bob", false).unwrap();
    let left = |bucket| front.inspect(|gateway| uploads::of_bucket(gateway, bucket)).unwrap().len();
    assert_eq!((left("b"), left("c")), (1, 0));
}
