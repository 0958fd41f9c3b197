# For Nix on Linux: nix-build --expr '(import <nixpkgs> { }).callPackage ./traceless.nix { }'
{ lib, stdenvNoCC, fetchurl, installShellFiles }:

let
  archives = {
    x86_64-linux = { arch = "x86_64"; sha256 = "@SHA256_X86_64@"; };
    aarch64-linux = { arch = "aarch64"; sha256 = "@SHA256_AARCH64@"; };
  };
  system = stdenvNoCC.hostPlatform.system;
  archive = archives.${system} or (throw "traceless has no archive for ${system}");
in
stdenvNoCC.mkDerivation rec {
  pname = "traceless";
  version = "@VERSION@";

  src = fetchurl {
    url = "@REPOSITORY@/releases/download/v${version}/traceless-${version}-${archive.arch}-linux.tar.gz";
    inherit (archive) sha256;
  };

  nativeBuildInputs = [ installShellFiles ];

  # The command is linked statically, and the library finds the C library of the program that loads
  # it: there is nothing to patch.
  dontConfigure = true;
  dontBuild = true;
  dontFixup = true;

  installPhase = ''
    runHook preInstall
    install -D -m 755 -t $out/bin bin/traceless bin/traceless-attest
    install -D -m 644 -t $out/lib/traceless lib/traceless/libtraceless_preload.so
    installManPage share/man/man1/*
    installShellCompletion --bash share/bash-completion/completions/*
    installShellCompletion --zsh share/zsh/site-functions/*
    installShellCompletion --fish share/fish/vendor_completions.d/*
    runHook postInstall
  '';

  doInstallCheck = true;
  installCheckPhase = "$out/bin/traceless --version";

  meta = {
    description = "Oblivious storage and memory";
    homepage = "@REPOSITORY@";
    license = with lib.licenses; [ mit asl20 ];
    platforms = builtins.attrNames archives;
    mainProgram = "traceless";
    sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];
  };
}
