//! An image for containers in the layout of OCI, in an archive. No daemon is needed to make it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::contents::Contents;
use super::files::{self, DATA, PROGRAM, Staging, sha256};
use super::platform::Platform;
use super::release::Release;
use crate::command::run;

/// The user of the program, and of its folder.
const USER: u32 = 65532;
const HOME: &str = "var/lib/traceless";
const BLOBS: &str = "blobs/sha256";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Writes an image with a manifest for each processor.
pub fn write_image(release: &Release, contents: &[Contents]) -> Result<(), String> {
    let layout = Staging::new(release.stage("oci"))?;
    let time = release.time()?;
    let mut manifests = Vec::new();
    for one in contents {
        let mut manifest = manifest(release, &layout, one, &time)?;
        manifest["platform"] = json!({ "architecture": one.platform.short_arch(), "os": "linux" });
        manifests.push(manifest);
    }
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let mut index = blob(&layout, &release.stage("blob"), INDEX, index.to_string().as_bytes())?;
    // Names for `docker load`, `podman load` and containerd.
    index["annotations"] = json!({
        "org.opencontainers.image.ref.name": release.version,
        "io.containerd.image.name": format!("docker.io/traceless/traceless:{}", release.version),
    });
    let entry = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [index] });
    layout.write("index.json", entry.to_string().as_bytes(), DATA)?;
    layout.write("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, DATA)?;
    let archive = release.out.join(format!("traceless-{}.oci.tar", release.version));
    let mut tar = files::tar_command(release, &layout.folder, &archive, 0);
    run(tar.args(["--create", "oci-layout", "index.json", "blobs"]))
}

/// Adds one processor's image, and returns the descriptor of its manifest.
fn manifest(
    release: &Release,
    layout: &Staging,
    contents: &Contents,
    time: &str,
) -> Result<Value, String> {
    let scratch = release.stage("blob");
    let (layer, diff) = layer(release, layout, contents)?;
    let labels = json!({
        "org.opencontainers.image.title": "traceless",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.revision,
        "org.opencontainers.image.source": release.repository,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.created": time,
    });
    let config = config(contents.platform, &labels, time, &diff);
    let config = blob(layout, &scratch, CONFIG, config.to_string().as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
        "annotations": labels,
    });
    blob(layout, &scratch, MANIFEST, manifest.to_string().as_bytes())
}

fn config(platform: Platform, labels: &Value, time: &str, diff: &str) -> Value {
    let home = format!("/{HOME}");
    let user = format!("{USER}:{USER}");
    json!({
        "created": time,
        "architecture": platform.short_arch(),
        "os": "linux",
        "config": {
            "User": user,
            "Entrypoint": ["/usr/bin/traceless"],
            "Cmd": ["--help"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": home,
            "Volumes": { home: {} },
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{diff}")] },
        "history": [{ "created": time, "created_by": "cargo xtask dist" }],
    })
}

/// Adds the only layer: the static programs, their user and their folder. Returns its descriptor,
/// and the digest of the archive before it is compressed.
fn layer(
    release: &Release,
    layout: &Staging,
    contents: &Contents,
) -> Result<(Value, String), String> {
    let name = format!("layer-{}", contents.platform.arch());
    let tree = Staging::new(release.stage(&name))?;
    for (name, program) in contents.programs.named() {
        tree.copy(program, &format!("usr/bin/{name}"), PROGRAM)?;
    }
    for text in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let to = format!("usr/share/doc/traceless/{text}");
        tree.copy(&release.root.join(text), &to, DATA)?;
    }
    let passwd = format!("traceless:x:{USER}:{USER}::/{HOME}:/sbin/nologin\n");
    tree.write("etc/passwd", passwd.as_bytes(), DATA)?;
    tree.write("etc/group", format!("traceless:x:{USER}:\n").as_bytes(), DATA)?;
    tree.make_folder("tmp")?;
    tree.make_folder(HOME)?;
    let archive = release.stage(&format!("{name}.tar"));
    let mut tar = files::tar_command(release, &tree.folder, &archive, 0);
    run(tar.args(["--create", "etc", "usr", "--no-recursion", "var", "var/lib"]))?;
    let mut tar = files::tar_command(release, &tree.folder, &archive, USER);
    run(tar.args(["--append", HOME, "tmp"]))?;
    let diff = sha256(&archive)?;
    let bytes = files::gzip(&archive)?;
    Ok((blob(layout, &release.stage("blob"), LAYER, &bytes)?, diff))
}

/// Adds bytes under their digest, and returns their descriptor.
fn blob(layout: &Staging, scratch: &Path, kind: &str, bytes: &[u8]) -> Result<Value, String> {
    files::write(scratch, bytes)?;
    let digest = sha256(scratch)?;
    layout.write(&format!("{BLOBS}/{digest}"), bytes, DATA)?;
    fs::remove_file(scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_named_by_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Staging::new(folder.path().join("layout")).unwrap();
        let found = blob(&layout, &folder.path().join("blob"), CONFIG, b"abc").unwrap();
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(found["digest"], format!("sha256:{digest}"));
        assert_eq!(found["size"], 3);
        let path = layout.folder.join(BLOBS).join(digest);
        assert_eq!(fs::read(path).unwrap(), b"abc");
    }
}
