#include "tests/integration/sandbox/fixture.hpp"

#include <absl/strings/escaping.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>

namespace openshell::sandbox::test {

using namespace std::chrono_literals;

std::string new_uuid() {
  static std::mt19937_64 random{std::random_device{}()};
  char text[37];
  const auto a = random(), b = random();
  std::snprintf(text, sizeof text, "%08x-%04x-4%03x-a%03x-%012llx", static_cast<unsigned>(a), static_cast<unsigned>(a >> 32) & 0xffff,
                static_cast<unsigned>(a >> 48) & 0xfff, static_cast<unsigned>(b) & 0xfff,
                static_cast<unsigned long long>(b >> 16) & 0xffffffffffffull);
  return text;
}

bool eventually(double seconds, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);  // between looks at the real world, not instead of one
  }
  return true;
}

TokenSigner::TokenSigner() : key_{EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")} {}
TokenSigner::~TokenSigner() { EVP_PKEY_free(static_cast<EVP_PKEY*>(key_)); }

std::string TokenSigner::public_pem() const {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PUBKEY(bio, static_cast<EVP_PKEY*>(key_));
  char* data = nullptr;
  const long n = BIO_get_mem_data(bio, &data);
  std::string pem(data, static_cast<std::size_t>(n));
  BIO_free(bio);
  return pem;
}

std::string TokenSigner::bearer(const boundary::SessionClaims& claims) const {
  const std::string head = absl::WebSafeBase64Escape(boundary::session_token_header("k1")) + "." +
                           absl::WebSafeBase64Escape(boundary::session_token_payload(claims));
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestSignInit(context, nullptr, nullptr, nullptr, static_cast<EVP_PKEY*>(key_));
  std::string signature(64, '\0');
  std::size_t n = 64;
  EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()), &n, reinterpret_cast<const unsigned char*>(head.data()),
                 head.size());
  EVP_MD_CTX_free(context);
  return head + "." + absl::WebSafeBase64Escape(signature);
}

// ---- client
// -----------------------------------------------------------------------------------------------------------------------------------------

ClientCall::ClientCall(wire::IsolationBoundary::Stub& stub, const std::string& bearer, const std::string& id,
                       const boundary::Request& request, bool mediate) {
  context_.AddMetadata("authorization", "Bearer " + bearer);
  stream_ = mediate ? stub.Mediate(&context_) : stub.Exchange(&context_);
  send(boundary::encode_control_frame(boundary::encode_request(id, request)));
}

ClientCall::~ClientCall() {
  if (finished_) return;
  context_.TryCancel();
  finish();
}

bool ClientCall::send(const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size() || at == 0; at += boundary::kMaxChunkBytes) {
    wire::BoundaryChunk chunk;
    chunk.set_data(bytes.substr(at, boundary::kMaxChunkBytes));
    if (!stream_->Write(chunk)) return false;
  }
  return true;
}

std::optional<boundary::Response> ClientCall::response() {
  wire::BoundaryChunk chunk;
  while (stream_->Read(&chunk)) {
    if (!decoder_.append(chunk.data()).ok()) return std::nullopt;
    if (auto frame = decoder_.next()) {
      rest_ = decoder_.take_rest();
      answered_ = true;
      auto decoded = boundary::decode_response(*frame);
      if (!decoded.ok()) return std::nullopt;
      return decoded->response;
    }
  }
  return std::nullopt;
}

std::optional<std::string> ClientCall::receive() {
  if (!rest_.empty()) return std::exchange(rest_, {});
  wire::BoundaryChunk chunk;
  if (!stream_->Read(&chunk)) return std::nullopt;
  return chunk.data();
}

grpc::Status ClientCall::finish() {
  finished_ = true;
  return stream_->Finish();
}

Client::Client(const boundary::Descriptor& descriptor, std::string bearer) : bearer_{std::move(bearer)} {
  grpc::SslCredentialsOptions tls{descriptor.tls_trust_anchor_pem, std::string(descriptor.tls_client_private_key_pem.reveal()),
                                  descriptor.tls_client_certificate_pem};
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(descriptor.tls_server_name);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto* tcp = std::get_if<boundary::TcpTransport>(&descriptor.transport);
  const std::string target = tcp ? tcp->addresses.front() : "unix:" + std::get<boundary::UnixTransport>(descriptor.transport).socket_path;
  channel_ = grpc::CreateCustomChannel(target, grpc::SslCredentials(tls), arguments);
  stub_ = wire::IsolationBoundary::NewStub(channel_);
}

std::unique_ptr<ClientCall> Client::open(const boundary::Request& request, const std::string& id) {
  return std::make_unique<ClientCall>(*stub_, bearer_, id, request);
}
std::unique_ptr<ClientCall> Client::mediate() {
  return std::make_unique<ClientCall>(*stub_, bearer_, new_uuid(), boundary::OpenMediation{}, true);
}

boundary::Response Client::ask(const boundary::Request& request, const std::string& id) {
  auto call = open(request, id);
  auto response = call->response();
  if (response) return *response;
  const auto status = call->finish();
  return boundary::Error{boundary::ErrorKind::unavailable,
                         "transport: " + std::to_string(status.error_code()) + " " + status.error_message()};
}

// ---- fixture
// ----------------------------------------------------------------------------------------------------------------------------------------

void SandboxProcess::SetUp() {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root for the namespaces";
  char pattern[] = "/tmp/openshell-sandbox-test-XXXXXX";
  dir_ = ::mkdtemp(pattern);
  ::chmod(dir_.c_str(), 0755);
  for (const char* name : {"root", "material", "channel"}) std::filesystem::create_directory(dir_ / name);
  const std::string session = new_uuid();
  certificates_ = *pki::make_session_certificates(SessionId{session});
  bootstrap.boundary_id = "sandbox-1";
  bootstrap.generation = "g1";
  bootstrap.session_id = session;
  bootstrap.gateway_id = "gw";
  bootstrap.verification_keys = {{"k1", signer_.public_pem()}};
  bootstrap.listener = {boundary::UnixListener{"/.openshell/channel/control.sock"},
                        {"/.openshell/sandbox/chain.pem", "/.openshell/sandbox/key.pem", "/.openshell/sandbox/ca.pem"}};
  bootstrap.workload_identity = {kUid, kUid, {}, "test", ""};
  bootstrap.outer_fence = {
      "g1", {boundary::kFenceGuarantees.begin(), boundary::kFenceGuarantees.end()}, boundary::evidence_digest("g1", "{}")};
  bootstrap.child_env = {{"FROM_USER", "yes"}};
  bootstrap.peer_names = boundary::PeerNames::anyip;
  bootstrap.stop_grace_secs = 1;
  descriptor.boundary_id = "sandbox-1";
  descriptor.generation = "g1";
  descriptor.session_id = session;
  descriptor.transport = boundary::UnixTransport{(dir_ / "channel/control.sock").string()};
  descriptor.tls_server_name = certificates_.server_name;
  descriptor.tls_trust_anchor_pem = certificates_.ca_certificate;
  descriptor.tls_client_certificate_pem = certificates_.client_certificate;
  descriptor.tls_client_private_key_pem = certificates_.client_key;
  policy.read_only = {"/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", "/dev/urandom", "/dev/zero"};
  policy.read_write = {"/tmp", "/dev/null"};
  policy.include_workdir = true;
}

void SandboxProcess::TearDown() {
  client.reset();
  if (unshare_ > 0) {
    // The sandbox is unshare's only child and PID 1 of its namespace: all of it goes with it. (--kill-child does not reach a process that
    // changed its uid.)
    std::ifstream children{"/proc/" + std::to_string(unshare_) + "/task/" + std::to_string(unshare_) + "/children"};
    for (pid_t child = 0; children >> child;) ::kill(child, SIGKILL);
    ::waitpid(unshare_, nullptr, 0);
  }
  if (!dir_.empty()) std::filesystem::remove_all(dir_);
}

void SandboxProcess::launch() {
  const auto put = [&](const char* name, std::string_view text) {
    const auto path = dir_ / "material" / name;
    std::ofstream{path} << text;
    ::chmod(path.c_str(), 0400);
    ASSERT_EQ(::chown(path.c_str(), kUid, kUid), 0);
  };
  put("chain.pem", certificates_.server_certificate);
  put("key.pem", certificates_.server_key.reveal());
  put("ca.pem", certificates_.ca_certificate);
  put("bootstrap.json", boundary::serialise(bootstrap));
  for (const char* name : {"material", "channel"}) {
    ASSERT_EQ(::chown((dir_ / name).c_str(), kUid, kUid), 0);
    ::chmod((dir_ / name).c_str(), 0700);
  }
  unshare_ = ::fork();
  ASSERT_GE(unshare_, 0);
  if (unshare_ == 0) {
    const std::string script = OPENSHELL_SOURCE_DIR "/tests/integration/sandbox/enter-root.sh", root = dir_ / "root",
                      bundle = OPENSHELL_BIN_DIR "/../bundle", material = dir_ / "material", channel = dir_ / "channel",
                      uid = std::to_string(kUid);
    ::execlp("unshare", "unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child", script.c_str(), root.c_str(),
             bundle.c_str(), material.c_str(), channel.c_str(), uid.c_str(), "--bootstrap", "/.openshell/sandbox/bootstrap.json",
             "--log-level", "info", nullptr);
    ::_exit(127);
  }
}

std::unique_ptr<Client> SandboxProcess::connect() { return std::make_unique<Client>(descriptor, bearer()); }

std::string SandboxProcess::bearer(std::uint64_t epoch, std::int64_t life) {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return signer_.bearer({"gw", "sandbox-1", "g1", epoch, now, now + life, new_uuid()});
}

boundary::Attach SandboxProcess::attach_request(const std::string& instance) const { return {instance, policy, bootstrap.resource_claims}; }

boundary::StartAgent SandboxProcess::start_request() const {
  boundary::StartAgent start;
  start.sandbox_id = "sandbox-1";
  start.policy = policy;
  start.spec.workdir = "/sandbox";
  start.ca_cert = "-----CA-----\n";
  start.ca_bundle = "-----BUNDLE-----\n";
  start.provider_env_revision = 7;
  start.provider_env = {{"API_TOKEN", "placeholder"}};
  return start;
}

void SandboxProcess::bring_up() {
  launch();
  const std::string socket = dir_ / "channel/control.sock";
  ASSERT_TRUE(eventually(15, [&] { return ::access(socket.c_str(), F_OK) == 0; })) << "never listened";
  client = connect();
  const auto attached = client->ask(attach_request());
  ASSERT_TRUE(std::holds_alternative<boundary::Attached>(attached)) << boundary::encode_response("", attached);
  const auto confirmed = client->ask(boundary::Confirm{});
  ASSERT_TRUE(std::holds_alternative<boundary::Confirmed>(confirmed)) << boundary::encode_response("", confirmed);
}

void SandboxProcess::start() {
  bring_up();
  if (HasFatalFailure()) return;
  const auto started = client->ask(start_request());
  ASSERT_TRUE(std::holds_alternative<boundary::Started>(started)) << boundary::encode_response("", started);
}

ExecResult SandboxProcess::collect(ClientCall& call) {
  ExecResult result;
  const auto response = call.response();
  if (!response) {
    result.refused = "no answer";
    return result;
  }
  if (const auto* error = std::get_if<boundary::Error>(&*response)) {
    result.refused = error->message;
    return result;
  }
  if (const auto* started = std::get_if<boundary::ExecStarted>(&*response)) result.process_id = started->process_id;
  boundary::ProcessFrameDecoder decoder;
  while (auto bytes = call.receive()) {
    if (!decoder.append(*bytes).ok()) break;
    while (auto frame = decoder.next()) {
      if (frame->channel == boundary::Channel::stdout_data) result.out += frame->payload;
      if (frame->channel == boundary::Channel::stderr_data) result.err += frame->payload;
      if (frame->channel == boundary::Channel::exit_status) result.status = *boundary::decode_exit_status(frame->payload);
    }
  }
  return result;
}

ExecResult SandboxProcess::exec(const std::string& script, const std::string& input, bool close_input) {
  boundary::Exec request;
  request.expires_at_unix_ms =
      static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count()) +
      30'000;
  request.spec.shell = boundary::ShellSpec{script, false};
  auto call = client->open(request);
  std::thread writer{[&] {
    for (std::size_t at = 0; at < input.size(); at += 16'000) {
      if (!call->send(boundary::encode_process_frame(boundary::Channel::stdin_data, input.substr(at, 16'000)))) return;
    }
    if (close_input) call->send(boundary::encode_process_frame(boundary::Channel::stdin_closed, ""));
  }};
  auto result = collect(*call);
  writer.join();
  return result;
}

std::optional<int> SandboxProcess::exit_code(double seconds) {
  int status = 0;
  const bool ended = eventually(seconds, [&] { return ::waitpid(unshare_, &status, WNOHANG) == unshare_; });
  if (!ended) return std::nullopt;
  unshare_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace openshell::sandbox::test
