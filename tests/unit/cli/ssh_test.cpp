// What the command line builds round the system's ssh, as values: sessions, command lines, configuration, records of forwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/ssh/config_file.hpp"
#include "cli/ssh/forward_records.hpp"
#include "cli/ssh/known_host.hpp"
#include "cli/ssh/remote.hpp"
#include "cli/ssh/session.hpp"
#include "cli/ssh/ssh_program.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

v1::CreateSshSessionResponse response() {
  v1::CreateSshSessionResponse out;
  out.set_sandbox_id("0d1c6f1e-7a51-4b3d-9f0e-0f6b1f0a9c11");
  out.set_token("abc.DEF_~+/=-");
  out.set_gateway_host("127.0.0.1");
  out.set_gateway_port(17'670);
  out.set_gateway_scheme("https");
  out.set_host_key_fingerprint("SHA256:abc+/=");
  return out;
}

std::string why(const v1::CreateSshSessionResponse& from) { return std::string{check_session(from).message()}; }

TEST(SshSession, NothingUnexpectedOfTheAnswerReachesACommandLine) {
  EXPECT_TRUE(check_session(response()).ok());
  const std::string prefix = "gateway returned invalid SSH session response: ";
  auto bad = response();
  bad.set_token("");
  EXPECT_EQ(why(bad), prefix + "token is empty");
  bad.set_token("a b");
  EXPECT_EQ(why(bad), prefix + "token contains invalid characters");
  bad.set_token(std::string(4'097, 'a'));
  EXPECT_EQ(why(bad), prefix + "token exceeds maximum length of 4096 bytes");
  bad = response();
  bad.set_sandbox_id("x;reboot");
  EXPECT_EQ(why(bad), prefix + "sandbox_id contains invalid characters");
  bad = response();
  bad.set_gateway_host("$(id)");
  EXPECT_EQ(why(bad), prefix + "gateway_host contains invalid characters");
  bad = response();
  bad.set_gateway_scheme("ssh");
  EXPECT_EQ(why(bad), prefix + "gateway_scheme must be 'http' or 'https'");
  bad = response();
  bad.set_gateway_port(65'536);
  EXPECT_EQ(why(bad), prefix + "gateway_port must be in range 1..=65535");
  bad = response();
  bad.set_host_key_fingerprint("SHA256:`id`");
  EXPECT_EQ(why(bad), prefix + "host_key_fingerprint contains invalid characters");
  bad.set_host_key_fingerprint("");
  EXPECT_EQ(why(bad), "") << "none is known yet";
}

TEST(SshSession, ALoopbackAnswerMeansTheGatewayThatWasAsked) {
  auto said = response();
  said.set_gateway_port(1);
  EXPECT_EQ(tunnel_url(said, "https://127.0.0.1:17670"), "https://127.0.0.1:17670");
  EXPECT_EQ(tunnel_url(said, "https://gw.example.test:8443/path"), "https://gw.example.test:8443");
  EXPECT_EQ(tunnel_url(said, "https://gw.example.test"), "https://gw.example.test:443");
  said.set_gateway_host("0.0.0.0");
  EXPECT_EQ(tunnel_url(said, "https://[::1]:9"), "https://[::1]:9");
  said.set_gateway_host("gw.inner.test");
  EXPECT_EQ(tunnel_url(said, "https://gw.example.test:8443"), "https://gw.inner.test:1");
}

SshSession session(const std::string& fingerprint = "SHA256:abc") {
  SshSession out;
  out.sandbox = "box";
  out.workspace = "default";
  out.sandbox_id = "id-1";
  out.gateway = "my gate%way";
  out.url = "https://127.0.0.1:17670";
  out.token = Secret{"secret-token"};
  out.fingerprint = fingerprint;
  return out;
}

TEST(SshProgram, WordsOfAShellAreQuoted) {
  EXPECT_EQ(shell_word("plain-1.2_x/y"), "plain-1.2_x/y");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\"'\"'s'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("$(id)"), "'$(id)'");
}

TEST(SshProgram, TheTokenIsInNoCommandLineAndTheKeyMustBeTheOneThatTheGatewayNamed) {
  const auto words = ssh_words("/usr/bin/ssh", "/opt/open shell", session(), true);
  for (const auto& word : words) EXPECT_THAT(word, Not(HasSubstr("secret-token")));
  EXPECT_THAT(words,
              Contains("ProxyCommand='/opt/open shell' ssh-proxy --gateway 'https://127.0.0.1:17670' --sandbox box --gateway-name 'my "
                       "gate%%way' --workspace default"));
  EXPECT_THAT(words, Contains("StrictHostKeyChecking=yes"));
  EXPECT_THAT(words, Contains("KnownHostsCommand='/opt/open shell' ssh-known-host --fingerprint SHA256:abc %H %t %K"));
  EXPECT_THAT(ssh_words("ssh", "o", session(""), true), Contains("StrictHostKeyChecking=no")) << "nothing is known";
  EXPECT_THAT(ssh_words("ssh", "o", session(), false), Contains("StrictHostKeyChecking=no")) << "an ssh that cannot ask";
}

TEST(SshProgram, AsksForTheKeyFromOpenSsh85On) {
  EXPECT_TRUE(knows_host_keys_by_command("OpenSSH_9.2p1 Debian-2+deb12u10, OpenSSL 3.0.19"));
  EXPECT_TRUE(knows_host_keys_by_command("OpenSSH_8.5p1"));
  EXPECT_TRUE(knows_host_keys_by_command("OpenSSH_10.0p2"));
  EXPECT_FALSE(knows_host_keys_by_command("OpenSSH_8.4p1"));
  EXPECT_FALSE(knows_host_keys_by_command("dropbear"));
}

TEST(SshProgram, AHostWithoutSshIsToldWhatIsMissingAndThatTheSandboxIsKept) {
  const std::string before = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  const auto found = find_ssh_program();
  ::setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string{found.status().message()},
              ::testing::AllOf(HasSubstr("`ssh`"), HasSubstr("openssh-client"), HasSubstr("sandbox is kept")));
}

TEST(KnownHost, OnlyTheExpectedKeyIsVouchedFor) {
  const std::string key = "a2V5", fingerprint = "SHA256:LHDhK3oGRvkiefQnx7OOczTY5Tic/xZ6HcMOc/gmtoM";  // of the bytes `key`
  EXPECT_EQ(known_host_line(fingerprint, "sandbox", "ssh-ed25519", key), "sandbox ssh-ed25519 a2V5");
  EXPECT_EQ(known_host_line(fingerprint + "=", "sandbox", "ssh-ed25519", key), "sandbox ssh-ed25519 a2V5") << "padded or not";
  EXPECT_EQ(known_host_line("SHA256:other", "sandbox", "ssh-ed25519", key), "");
  EXPECT_EQ(known_host_line(fingerprint, "sandbox", "ssh-ed25519", "NONE!"), "");
  EXPECT_EQ(known_host_line("", "sandbox", "ssh-ed25519", key), "");
}

// ---- ssh-config

TEST(ConfigFile, TheBlockIsWhatToolsRead) {
  EXPECT_EQ(host_block("/usr/bin/openshell", "local", "box", "default"),
            "Host openshell-box.default\n    User sandbox\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n"
            "    GlobalKnownHostsFile /dev/null\n    LogLevel ERROR\n    ServerAliveInterval 15\n    ServerAliveCountMax 3\n"
            "    ProxyCommand /usr/bin/openshell ssh-proxy --gateway-name local --name box --workspace default\n");
}

TEST(ConfigFile, TheIncludeStandsBeforeTheFirstHostAndOnlyOnce) {
  EXPECT_EQ(with_include("", "/u/ssh_config"), "Include \"/u/ssh_config\"\n");
  const std::string config = "# mine\nIdentityFile x\nHost a\n  Port 1\nInclude \"/u/ssh_config\"\nMatch all\n";
  const auto once = with_include(config, "/u/ssh_config");
  EXPECT_EQ(once, "# mine\nIdentityFile x\n\nInclude \"/u/ssh_config\"\n\nHost a\n  Port 1\nMatch all\n");
  EXPECT_EQ(with_include(once, "/u/ssh_config"), once);
}

TEST(ConfigFile, ABlockIsReplacedAndEveryOtherKept) {
  const std::string others = "Host openshell-*\n  ForwardAgent no\n\nHost openshell-a.default\n  Port 1\n\nHost z\n  Port 2\n";
  EXPECT_EQ(with_block(others, "openshell-a.default", "Host openshell-a.default\n  Port 9\n"),
            "Host openshell-*\n  ForwardAgent no\n\nHost openshell-a.default\n  Port 9\n\nHost z\n  Port 2\n");
  EXPECT_EQ(with_block("Host z\n  Port 2\n", "n", "Host n\n  Port 3\n"), "Host z\n  Port 2\n\nHost n\n  Port 3\n");
  EXPECT_EQ(with_block("", "n", "Host n\n  Port 3\n"), "Host n\n  Port 3\n");
}

// ---- forwards

TEST(Forwards, SpecsAreAnAddressAndAPort) {
  const auto read = [](const std::string& text) {
    auto spec = parse_forward_spec(text);
    return spec.ok() ? spec->bind + " " + std::to_string(spec->port) : std::string{spec.status().message()};
  };
  EXPECT_EQ(read("8080"), "127.0.0.1 8080");
  EXPECT_EQ(read("0.0.0.0:80"), "0.0.0.0 80");
  EXPECT_EQ(read("[::1]:80"), "::1 80");
  EXPECT_EQ(read("::1:80"), "::1 80");
  EXPECT_EQ(read("65535"), "127.0.0.1 65535");
  EXPECT_EQ(read("65536"), "port must be between 1 and 65535");
  EXPECT_EQ(read("0"), "port must be between 1 and 65535");
  for (const char* bad : {"", "x", ":80", "80:", "-1", "80x"})
    EXPECT_EQ(read(bad), "invalid forward spec '" + std::string{bad} + "': expected [bind_address:]port") << bad;
}

ForwardRecord record() { return {"local", "default", "box", "id-1", "127.0.0.1", 8'080, 4'242}; }

std::vector<std::string> command_line() {
  return {"/usr/bin/ssh",
          "-o",
          "ProxyCommand=/opt/openshell ssh-proxy --gateway x",
          "-N",
          "-o",
          "SetEnv=OPENSHELL_FORWARD_SANDBOX_ID=id-1",
          "-L",
          "127.0.0.1:8080:127.0.0.1:8080",
          "sandbox"};
}

TEST(Forwards, AProcessIsSignalledOnlyIfItsCommandLineIsThatOfTheForward) {
  EXPECT_TRUE(is_forward(command_line(), record()));
  const auto changed = [](std::size_t at, const std::string& word) {
    auto words = command_line();
    words[at] = word;
    return words;
  };
  EXPECT_FALSE(is_forward(changed(0, "/usr/bin/sshd"), record()));
  EXPECT_FALSE(is_forward(changed(2, "ProxyCommand=/usr/bin/nc x"), record()));
  EXPECT_FALSE(is_forward(changed(3, "-v"), record()));
  EXPECT_FALSE(is_forward(changed(5, "SetEnv=OPENSHELL_FORWARD_SANDBOX_ID=id-2"), record()));
  EXPECT_FALSE(is_forward(changed(7, "127.0.0.1:18080:127.0.0.1:18080"), record()));
  EXPECT_FALSE(is_forward(changed(8, "box"), record()));
  EXPECT_FALSE(is_forward({}, record()));
  auto old = record();
  old.sandbox_id = "";
  EXPECT_FALSE(is_forward(command_line(), old)) << "a record of an older form is only deleted";
}

TEST(Forwards, RecordsAreKeptByGatewayWorkspaceAndSandbox) {
  std::string pattern = (std::filesystem::temp_directory_path() / "forwards-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  const ForwardRecords records{folder};
  auto other = record();
  other.workspace = "team";
  other.sandbox = "a-b";
  other.port = 1;
  ASSERT_TRUE(records.save(other).ok());
  ASSERT_TRUE(records.save(record()).ok());
  auto elsewhere = record();
  elsewhere.gateway = "https://gw/x";
  ASSERT_TRUE(records.save(elsewhere).ok());
  std::ofstream{folder / "local" / "default" / "junk-1"} << "12345";
  const auto all = records.list("local");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].sandbox, "box");
  EXPECT_EQ(all[1].sandbox, "a-b");
  EXPECT_EQ(records.list("https://gw/x").size(), 1U);
  EXPECT_FALSE(ForwardRecords::alive(record())) << "whatever process has that number";
  EXPECT_FALSE(records.stop(record()));
  EXPECT_EQ(records.list("local").size(), 1U) << "the record goes all the same";
  std::filesystem::remove_all(folder);
}

TEST(Remote, CanonicalPaths) {
  for (const char* good : {"/", "/a", "/a/b.c"}) EXPECT_TRUE(is_canonical(good)) << good;
  for (const char* bad : {"", "a", "/a/", "/a//b", "/a/./b", "/a/../b", "//"}) EXPECT_FALSE(is_canonical(bad)) << bad;
}

}  // namespace
}  // namespace openshell::cli
