# For Homebrew on Linux: brew install ./traceless.rb
class Traceless < Formula
  desc "Oblivious storage and memory"
  homepage "@REPOSITORY@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on :linux

  on_intel do
    url "@REPOSITORY@/releases/download/v@VERSION@/traceless-@VERSION@-x86_64-linux.tar.gz"
    sha256 "@SHA256_X86_64@"
  end

  on_arm do
    url "@REPOSITORY@/releases/download/v@VERSION@/traceless-@VERSION@-aarch64-linux.tar.gz"
    sha256 "@SHA256_AARCH64@"
  end

  def install
    bin.install "bin/traceless", "bin/traceless-attest"
    (lib/"traceless").install "lib/traceless/libtraceless_preload.so"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install Dir["share/bash-completion/completions/*"]
    zsh_completion.install Dir["share/zsh/site-functions/*"]
    fish_completion.install Dir["share/fish/vendor_completions.d/*"]
  end

  test do
    (testpath/"key").binwrite "k" * 32
    system bin/"traceless", "volume", "create", "image", "--size", "16M", "--key-file", "key"
    system bin/"traceless", "volume", "check", "image", "--key-file", "key"
  end
end
