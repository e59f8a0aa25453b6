// The real supervisor and the real sandbox runtime, started by the real process driver; only the gateway is scripted.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "drivers/process/process_driver.hpp"
#include "isolation/boundary/session_token.hpp"
#include "pki/keys.hpp"
#include "policy/parse.hpp"
#include "tests/integration/supervisor/scripted_gateway.hpp"

namespace openshell::supervisor {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kId = "5a1d5f0e-1111-4222-8333-0123456789ab";
constexpr const char* kGeneration = "7b1d5f0e-1111-4222-8333-0123456789ab";

std::string base64url(std::string_view bytes) {
  static constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const unsigned char c : bytes) {
    bits = (bits << 8) | c;
    for (count += 8; count >= 6; count -= 6) out += kAlphabet[(bits >> (count - 6)) & 63];
  }
  if (count > 0) out += kAlphabet[(bits << (6 - count)) & 63];
  return out;
}

std::string sign(const pki::PrivateKey& key, const std::string& text) {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestSignInit(context, nullptr, nullptr, nullptr, key.native());
  std::size_t size = 64;
  std::string signature(size, '\0');
  EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()), &size, reinterpret_cast<const unsigned char*>(text.data()),
                 text.size());
  EVP_MD_CTX_free(context);
  return signature;
}

drivers::LaunchAuthentication authentication() {
  const auto key = pki::PrivateKey::generate(pki::KeyKind::kEd25519).value();
  const auto key_id = pki::key_id(key).value();
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  boundary::SessionClaims claims{"openshell", kId, kGeneration, 1, now, now + 3600, "6f1c2a34-9999-4000-8000-0123456789ab"};
  const auto text = base64url(boundary::session_token_header(key_id)) + '.' + base64url(boundary::session_token_payload(claims));
  drivers::LaunchAuthentication made;
  made.session_id = SessionId{"6f1c2a34-0000-4000-8000-0123456789ab"};
  made.runtime_generation = GenerationId{kGeneration};
  made.gateway_id = "openshell";
  made.gateway_token = Secret{"gateway-token"};
  made.sandbox_token = Secret{text + '.' + base64url(sign(key, text))};
  made.sandbox_expires_at = now + 3600;
  made.verification_keys = {{key_id, key.public_pem().value()}};
  made.supervisor_settings.denial_flush_interval_secs = 1;
  return made;
}

std::string read(const std::string& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// An HTTP server on the host that answers every request with 200 and the Authorization value it got.
class HostServer {
 public:
  HostServer() {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(fd_, 8);
    socklen_t size = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread{[this] { serve(); }};
  }
  ~HostServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  [[nodiscard]] int port() const { return port_; }

 private:
  void serve() {
    while (true) {
      const int peer = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) return;
      std::string text;
      char buffer[4096];
      while (text.find("\r\n\r\n") == std::string::npos) {
        const auto count = ::read(peer, buffer, sizeof buffer);
        if (count <= 0) break;
        text.append(buffer, static_cast<std::size_t>(count));
      }
      const auto at = text.find("uthorization: ");
      const auto value = at == std::string::npos ? std::string{"none"} : text.substr(at + 14, text.find("\r\n", at) - at - 14);
      const auto body = "got " + value + "\n";
      const auto answer = "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
      (void)!::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
      ::close(peer);
    }
  }
  int fd_;
  int port_ = 0;
  std::thread thread_;
};

sandbox::v1::SandboxPolicy policy_for(const std::vector<int>& ports) {
  std::string text =
      "version: 1\n"
      "filesystem_policy:\n  include_workdir: true\n  read_only: [/usr, /bin, /sbin, /lib, /lib64, /etc, /opt, /app, /proc, /dev/urandom, "
      "/var/log]\n"
      "  read_write: [/sandbox, /tmp, /dev/null, /dev/zero, /dev/tty]\n"
      "network_policies:\n  host:\n    name: host\n    endpoints:\n";
  for (const int port : ports) {
    text += "      - {host: host.openshell.internal, port: " + std::to_string(port) +
            ", protocol: rest, enforcement: enforce, rules: [{allow: {method: GET, path: /tools.json}}]}\n";
  }
  text += "    binaries: [{path: \"**/curl\"}]\n";
  auto loaded = policy::load_policy(text, "test.yaml");
  EXPECT_TRUE(loaded.ok()) << loaded.diagnostics.render();
  return loaded.policy ? *loaded.policy : sandbox::v1::SandboxPolicy{};
}

class WithSandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("OPENSHELL_TEST_BUNDLE");
    const std::string bundle = given ? given : OPENSHELL_BIN_DIR "/../bundle";
    if (!fs::exists(bundle + "/openshell-sandbox")) GTEST_SKIP() << "no bundle at " << bundle;
    char name[] = "/tmp/osv.XXXXXX";
    path_ = ::mkdtemp(name);
    ::chmod(path_.c_str(), 0711);
    drivers::ProcessDriverOptions options;
    options.state_dir = path_ + "/state";
    options.runtime_dir = path_ + "/run";
    options.slots_dir = path_ + "/slots";
    options.bundle_dir = bundle;
    options.supervisor_path = OPENSHELL_BIN_DIR "/openshell-supervisor";
    options.monitor_path = OPENSHELL_BIN_DIR "/openshell-sandbox-monitor";
    options.gateway_endpoint = gateway_.endpoint();
    options.sandbox_uid_range = {1'950'000'000, 1'950'000'127};
    options.supervisor_log_level = "debug";
    auto driver = drivers::make_process_driver(options);
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
  }
  void TearDown() override {
    if (HasFailure()) {
      for (const auto& entry : fs::recursive_directory_iterator{path_}) {
        if (entry.path().extension() == ".log") std::cerr << "== " << entry.path() << "\n" << read(entry.path().string());
      }
    }
    if (driver_) {
      EXPECT_TRUE(driver_->remove(SandboxId{kId}).ok());
    }
    driver_.reset();
    if (!path_.empty()) fs::remove_all(path_);
  }

  void start() {
    drivers::SandboxSpec spec;
    spec.id = SandboxId{kId};
    spec.name = "box";
    spec.workspace = "default";
    spec.command = {"/bin/sleep", "1000"};
    auto created = driver_->create(spec, authentication());
    ASSERT_TRUE(created.ok()) << created.status();
    ASSERT_TRUE(gateway_.wait_for_session());
  }

  test::ScriptedGateway gateway_;
  std::string path_;
  std::unique_ptr<drivers::ComputeDriver> driver_;
};

TEST_F(WithSandbox, StartExecAllowedDeniedAndAPolicyChange) {  // NET-17  // NET-01
  HostServer first, second;
  gateway_.set_environment("API_TOKEN", "the-real-secret");
  gateway_.set_policy(policy_for({first.port()}), 1);
  start();
  ASSERT_TRUE(gateway_.wait_for_status(1, v1::POLICY_STATUS_LOADED));

  const auto printed = gateway_.exec("echo out; echo err >&2; id -u; exit 3", "");
  EXPECT_EQ(printed.out, "out\n1000\n");
  EXPECT_EQ(printed.err, "err\n");
  EXPECT_EQ(printed.code, 3);

  const std::string input(3'000'000, 'y');
  const auto counted = gateway_.exec("wc -c", input);
  EXPECT_EQ(counted.out, "3000000\n");

  const auto url = [](int port, const std::string& path) { return "http://host.openshell.internal:" + std::to_string(port) + path; };
  const auto placeholder = gateway_.exec("echo $API_TOKEN", "");
  EXPECT_EQ(placeholder.out.find("the-real-secret"), std::string::npos);
  const auto allowed = gateway_.exec("curl -sS -H \"Authorization: Bearer $API_TOKEN\" " + url(first.port(), "/tools.json"), "");
  EXPECT_EQ(allowed.out, "got Bearer the-real-secret\n") << allowed.err;
  const auto refused = gateway_.exec("curl -sS -o /dev/null -w '%{http_code}' -X POST -d x " + url(first.port(), "/push"), "");
  EXPECT_EQ(refused.out, "403") << refused.err;
  const auto numbered = gateway_.exec("echo $$; exec curl -sS " + url(first.port(), "/tools.json"), "");
  const auto pid = numbered.out.substr(0, numbered.out.find('\n'));
  EXPECT_TRUE(gateway_.wait_for_log("curl(" + pid + ") ->")) << numbered.out;
  const auto other_port = "exec 3<>/dev/tcp/host.openshell.internal/" + std::to_string(second.port());
  const auto denied = gateway_.exec(other_port, "");
  EXPECT_NE(denied.code, 0);
  EXPECT_THAT(denied.err, HasSubstr("Permission denied"));
  EXPECT_TRUE(gateway_.wait_for_log("denial_id"));
  EXPECT_TRUE(gateway_.wait_for_analysis("host.openshell.internal"));

  const auto before = std::chrono::steady_clock::now();
  gateway_.set_policy(policy_for({first.port(), second.port()}), 2);
  ASSERT_TRUE(gateway_.nudge("n1"));
  EXPECT_TRUE(gateway_.wait_for_status(2, v1::POLICY_STATUS_LOADED));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds{8}) << "by the nudge, not by the poll after 10 s";
  const auto now_allowed = gateway_.exec("curl -sS " + url(second.port(), "/tools.json"), "");
  EXPECT_EQ(now_allowed.out, "got none\n") << now_allowed.err;
}

TEST_F(WithSandbox, D30_TheTreeOfACancelledExecIsGone) {
  gateway_.set_policy(policy_for({1}), 1);
  start();
  ASSERT_TRUE(gateway_.exec_and_cancel("sleep 4711 & sleep 4711"));
  std::string left = "?";
  for (int tries = 0; tries < 100 && !left.empty(); ++tries) {
    left = gateway_.exec("for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q '^sleep 47' && echo $p; done; true", "")
               .out;
  }
  EXPECT_EQ(left, "");
}

}  // namespace
}  // namespace openshell::supervisor
