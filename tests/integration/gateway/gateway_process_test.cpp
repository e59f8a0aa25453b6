// The program itself, from outside: its port with real clients, its start-up errors, its end.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <set>

#include "api/tokens.hpp"
#include "openshell.grpc.pb.h"
#include "pki/certificate.hpp"
#include "storage/store.hpp"
#include "tests/free_port.hpp"
#include "tests/integration/gateway/gateway_stub.hpp"

namespace openshell::gateway {
namespace {

using namespace openshell::v1;
using testing::HasSubstr;

grpc::Status health(OpenShell::Stub& stub, HealthResponse* response = nullptr, const Headers& headers = {}) {
  grpc::ClientContext ctx;
  prepare(ctx, headers);
  HealthResponse own;
  return stub.Health(&ctx, {}, response != nullptr ? response : &own);
}
grpc::Status whoami(OpenShell::Stub& stub, GetCurrentUserResponse& response, const Headers& headers = {}) {
  grpc::ClientContext ctx;
  prepare(ctx, headers);
  return stub.GetCurrentUser(&ctx, {}, &response);
}
grpc::Status create_provider(OpenShell::Stub& stub, const std::string& name, const std::map<std::string, std::string>& credentials,
                             ProviderResponse* response = nullptr, const std::string& type = "generic",
                             const std::string& workspace = "default") {
  grpc::ClientContext ctx;
  prepare(ctx, {});
  CreateProviderRequest request;
  request.mutable_workspace_scope()->set_workspace(workspace);
  request.mutable_provider()->mutable_metadata()->set_name(name);
  request.mutable_provider()->set_type(type);
  for (const auto& [key, value] : credentials) (*request.mutable_provider()->mutable_credentials())[key] = value;
  ProviderResponse own;
  return stub.CreateProvider(&ctx, request, response != nullptr ? response : &own);
}

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 512> buffer{};
  while (std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), got);
  ::pclose(pipe);
  return out;
}

/// One connection with raw bytes: what comes back until the end, at most 8 s.
std::string raw_exchange(int port, const std::string& bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{8, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::string out;
  std::array<char, 512> buffer{};
  ssize_t got = 0;
  while ((got = ::recv(fd, buffer.data(), buffer.size(), 0)) > 0) out.append(buffer.data(), static_cast<std::size_t>(got));
  if (got < 0 && errno == EAGAIN) out += "(still open)";
  ::close(fd);
  return out;
}

class TlsGateway : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(gateway_.start()) << gateway_.log();
    stub_ = connect(gateway_, own_tls(gateway_));
  }
  GatewayProcess gateway_;
  Stub stub_;
};

TEST_F(TlsGateway, OnePortServesGrpcAndHttp) {
  HealthResponse response;
  ASSERT_TRUE(health(*stub_, &response).ok());
  EXPECT_EQ(response.version(), "0.1.5");
  EXPECT_EQ(response.status(), SERVICE_STATUS_HEALTHY);
  const std::string curl =
      cat("curl -sS -i --max-time 5 --cacert ", gateway_.tls(), "/ca.crt https://localhost:", gateway_.port(), "/none");
  EXPECT_THAT(output_of(curl), HasSubstr("HTTP/1.1 404 Not Found"));
  EXPECT_THAT(output_of(curl), HasSubstr("x-request-id: "));
  EXPECT_THAT(output_of(curl + " -H 'x-request-id: mine'"), HasSubstr("x-request-id: mine"));
}

TEST_F(TlsGateway, ACertificateIsTheUser) {
  GetCurrentUserResponse user;
  ASSERT_TRUE(whoami(*stub_, user).ok());
  EXPECT_EQ(user.subject(), "openshell-client");
  EXPECT_EQ(user.roles(0), "openshell-user");
  EXPECT_EQ(user.identity_provider(), "mtls");
}

TEST_F(TlsGateway, GW_01_WithoutACertificateNobodyButHealthAnswers) {
  const auto anonymous = connect(gateway_, {own_tls(gateway_).ca, "", ""});
  GetCurrentUserResponse user;
  EXPECT_TRUE(health(*anonymous).ok());
  const auto status = whoami(*anonymous, user);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(status.error_message(), "missing client certificate");
}

TEST_F(TlsGateway, AForeignCertificateEndsTheHandshake) {
  pki::AuthorityProfile authority;
  authority.common_name = "openshell-ca";
  pki::LeafProfile leaf;
  leaf.common_name = "openshell-client";
  leaf.usage = pki::Usage::kClient;
  const auto foreign = *pki::CertificateAuthority::create(authority)->issue(leaf, pki::KeyKind::kP256);
  const auto stub = connect(gateway_, {own_tls(gateway_).ca, foreign.certificate.to_pem(), std::string{foreign.key.to_pem()->reveal()}});
  EXPECT_EQ(health(*stub).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsGateway, GW_27_ASupervisorsCertificateIsNoUser) {
  const auto ca =
      *pki::CertificateAuthority::load(file_content(gateway_.tls() + "/ca.crt"), Secret{file_content(gateway_.tls() + "/ca.key")});
  pki::LeafProfile leaf;
  leaf.common_name = "supervisor";
  leaf.organizational_units = {"openshell-sandbox"};
  leaf.usage = pki::Usage::kClient;
  const auto supervisor = *ca.issue(leaf, pki::KeyKind::kP256);
  const auto stub =
      connect(gateway_, {own_tls(gateway_).ca, supervisor.certificate.to_pem(), std::string{supervisor.key.to_pem()->reveal()}});
  GetCurrentUserResponse user;
  EXPECT_EQ(whoami(*stub, user).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(TlsGateway, GW_01_AnUnknownBearerIsRefusedThoughTheCertificateIsGood) {
  GetCurrentUserResponse user;
  for (const char* value : {"Bearer nonsense", "Basic abc", "bearer x"}) {
    const auto status = whoami(*stub_, user, {{{"authorization", value}}});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << value;
    EXPECT_EQ(status.error_message(), "invalid token: unknown signing key") << value;
  }
  EXPECT_EQ(whoami(*stub_, user, {{{"authorization", "Bearer a"}, {"authorization", "Bearer b"}}}).error_message(),
            "duplicate authorization metadata");
}

TEST_F(TlsGateway, ATokenOfNoSandboxIsNobody) {
  const auto tokens = *api::TokenAuthority::load(
      {gateway_.tls() + "/jwt/signing.pem", gateway_.tls() + "/jwt/public.pem", gateway_.tls() + "/jwt/kid", "openshell", std::nullopt});
  const auto token = tokens->sign(api::TokenKind::kGateway,
                                  {SandboxId{storage::new_uuid()}, GenerationId{"g"}, 1, storage::new_uuid(), ::time(nullptr), 0});
  GetCurrentUserResponse user;
  const auto status = whoami(*stub_, user, {{{"authorization", cat("Bearer ", token.reveal())}}});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(TlsGateway, MethodsWithoutAHandlerSayTheirName) {
  grpc::ClientContext ctx;
  prepare(ctx, {});
  RotateProviderCredentialRequest request;
  RotateProviderCredentialResponse response;
  const auto status = stub_->RotateProviderCredential(&ctx, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("RotateProviderCredential"));
}

TEST_F(TlsGateway, ARequestOverOneMebibyteIsRefusedAndOneBelowIsRead) {
  const auto described = [&](std::size_t size) {
    grpc::ClientContext ctx;
    prepare(ctx, {});
    GetProviderRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    request.set_name(std::string(size, 'n'));
    ProviderResponse response;
    return stub_->GetProvider(&ctx, request, &response).error_code();
  };
  EXPECT_EQ(described(1'000'000), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(described(1'048'577), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(health(*stub_).ok()) << "the connection serves on";
}

TEST_F(TlsGateway, PlaintextOnATlsPortGetsNoAnswer) {
  EXPECT_EQ(raw_exchange(gateway_.port(), "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), "");
  EXPECT_EQ(raw_exchange(gateway_.port(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "");
  EXPECT_EQ(raw_exchange(gateway_.port(), "SSH-2.0-test\r\n"), "");
}

TEST_F(TlsGateway, ASilentConnectionIsClosedInFiveSecondsAndDisturbsNobody) {
  std::vector<int> silent;
  for (int i = 0; i < 50; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(gateway_.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    silent.push_back(fd);
  }
  EXPECT_TRUE(health(*connect(gateway_, own_tls(gateway_))).ok());
  EXPECT_EQ(raw_exchange(gateway_.port(), std::string{"\x16\x03\x01\x02", 4}), "") << "half a ClientHello ends after the limit, not never";
  for (const int fd : silent) ::close(fd);
}

TEST_F(TlsGateway, AProvidersLifeAndItsSecretNowhereInClear) {
  const std::string secret = "correct-horse-battery-staple";
  ProviderResponse made;
  ASSERT_TRUE(create_provider(*stub_, "api-server", {{"API_TOKEN", secret}}, &made).ok());
  EXPECT_EQ(made.provider().credentials().at("API_TOKEN"), "REDACTED");
  EXPECT_EQ(made.provider().metadata().resource_version(), 1U);
  EXPECT_TRUE(made.provider().credential_handles().empty());
  EXPECT_EQ(create_provider(*stub_, "api-server", {{"API_TOKEN", secret}}).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  {
    grpc::ClientContext ctx;
    prepare(ctx, {});
    DeleteProviderRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    request.set_name("api-server");
    DeleteProviderResponse response;
    ASSERT_TRUE(stub_->DeleteProvider(&ctx, request, &response).ok());
    EXPECT_EQ(response.outcome(), DELETION_OUTCOME_COMPLETED);
    grpc::ClientContext again;
    prepare(again, {});
    EXPECT_EQ(stub_->DeleteProvider(&again, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
    request.set_allow_missing(true);
    grpc::ClientContext missing;
    prepare(missing, {});
    ASSERT_TRUE(stub_->DeleteProvider(&missing, request, &response).ok());
    EXPECT_EQ(response.outcome(), DELETION_OUTCOME_ALREADY_ABSENT);
  }
  ASSERT_TRUE(create_provider(*stub_, "api-server", {{"API_TOKEN", secret}}, &made).ok()) << "made again at once";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(gateway_.state())) {
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(file_content(entry.path()).find(secret), std::string::npos) << entry.path();
  }
  EXPECT_EQ(gateway_.log().find(secret), std::string::npos);
}

TEST_F(TlsGateway, ProvidersArePagedAndTokensBelongToTheirRequest) {
  std::set<std::string> all;
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(create_provider(*stub_, cat("p", i), {{"K", "v"}}).ok());
    all.insert(cat("p", i));
  }
  const auto list = [&](ListProvidersRequest request, ListProvidersResponse& response) {
    grpc::ClientContext ctx;
    prepare(ctx, {});
    return stub_->ListProviders(&ctx, request, &response);
  };
  ListProvidersRequest request;
  request.mutable_workspace_scope()->set_workspace("default");
  request.set_page_size(3);
  std::set<std::string> seen;
  std::string first_token;
  do {
    ListProvidersResponse response;
    ASSERT_TRUE(list(request, response).ok());
    for (const auto& provider : response.providers()) seen.insert(provider.metadata().name());
    request.set_page_token(response.next_page_token());
    if (first_token.empty()) first_token = response.next_page_token();
  } while (!request.page_token().empty());
  EXPECT_EQ(seen, all);
  ListProvidersResponse response;
  request.set_page_token(first_token);
  request.set_label_selector("a=b");
  EXPECT_EQ(list(request, response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_label_selector("");
  request.mutable_workspace_scope()->mutable_all_workspaces();
  EXPECT_EQ(list(request, response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_page_token("");
  EXPECT_TRUE(list(request, response).ok());
  request.set_page_size(-1);
  EXPECT_EQ(list(request, response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(TlsGateway, ProviderMistakesNameTheirField) {
  const auto error = [&](const std::map<std::string, std::string>& credentials, const std::string& type = "generic",
                         const std::string& workspace = "default") {
    return create_provider(*stub_, "p", credentials, nullptr, type, workspace);
  };
  EXPECT_EQ(error({}).error_message(), "provider.credentials must not be empty");
  EXPECT_THAT(error({{"v1_KEY", "x"}}).error_message(), HasSubstr("is reserved"));
  EXPECT_THAT(error({{"BAD-KEY", "x"}}).error_message(), HasSubstr("must match"));
  EXPECT_THAT(error({{"K", std::string(8193, 'x')}}).error_message(), HasSubstr("value exceeds maximum length (8193 > 8192)"));
  EXPECT_THAT(error({{"K", "x"}}, "crm").error_message(), HasSubstr("provider profile 'crm' was not found"));
  EXPECT_EQ(error({{"K", "x"}}, "generic", "nowhere").error_code(), grpc::StatusCode::NOT_FOUND);
  const auto unnamed = error({{"K", "x"}}, "generic", "");
  EXPECT_EQ(unnamed.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(unnamed.error_details(), HasSubstr("workspace_scope"));
  std::map<std::string, std::string> many;
  for (int i = 0; i < 33; ++i) many[cat("K", i)] = "x";
  EXPECT_THAT(error(many).error_message(), HasSubstr("exceeds maximum entries (33 > 32)"));
  many.erase("K32");
  EXPECT_TRUE(error(many).ok());
}

TEST_F(TlsGateway, TheGenericProfileIsThereThoughNothingWasImported) {
  GetProviderProfileRequest request;
  request.mutable_workspace_scope()->set_workspace("default");
  request.set_id("generic");
  ProviderProfileResponse response;
  grpc::ClientContext ctx;
  prepare(ctx, {});
  ASSERT_TRUE(stub_->GetProviderProfile(&ctx, request, &response).ok());
  EXPECT_EQ(response.profile().display_name(), "Generic");
  request.set_id("crm");
  grpc::ClientContext other;
  prepare(other, {});
  EXPECT_EQ(stub_->GetProviderProfile(&other, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(TlsGateway, ManyCallsAtOnceAreAllAnswered) {
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const auto stub = connect(gateway_, own_tls(gateway_));
      for (int i = 0; i < 100; ++i) good += health(*stub).ok() ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 800);
}

TEST_F(TlsGateway, SigtermEndsItWellAndLeavesNoSocket) {
  EXPECT_EQ(gateway_.terminate(), 0) << gateway_.log();
  EXPECT_THAT(gateway_.log(), HasSubstr("gateway stopped"));
  EXPECT_FALSE(std::filesystem::exists(gateway_.run() + "/gateway/grpc.sock"));
}

TEST(Gateway, GW_03_WhatWasAcknowledgedSurvivesAKill) {
  GatewayProcess gateway;
  ASSERT_TRUE(gateway.start()) << gateway.log();
  ASSERT_TRUE(create_provider(*connect(gateway, own_tls(gateway)), "kept", {{"K", "v"}}).ok());
  EXPECT_EQ(gateway.terminate(SIGKILL), 128 + SIGKILL);
  ASSERT_TRUE(gateway.start()) << gateway.log();
  EXPECT_EQ(create_provider(*connect(gateway, own_tls(gateway)), "kept", {{"K", "v"}}).error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST(Gateway, InPlaintextItServesTheLocalUserOnLoopback) {
  GatewayProcess gateway;
  ASSERT_TRUE(gateway.start({"--disable-tls"})) << gateway.log();
  const auto stub = connect_plain(gateway);
  GetCurrentUserResponse user;
  ASSERT_TRUE(whoami(*stub, user).ok());
  EXPECT_EQ(user.subject(), "unauthenticated-local-dev");
  EXPECT_THAT(output_of(cat("curl -sS -i --max-time 5 http://127.0.0.1:", gateway.port(), "/")), HasSubstr("404"));
  EXPECT_EQ(raw_exchange(gateway.port(), std::string{"\x16\x03\x01\x00\x01\x00", 6}), "");
  EXPECT_THAT(gateway.log(), HasSubstr("No user authentication is configured"));
}

TEST(Gateway, TheRateLimitCountsEveryCall) {
  GatewayProcess gateway;
  ASSERT_TRUE(gateway.start({"--grpc-rate-limit-requests", "5", "--grpc-rate-limit-window-seconds", "3600"})) << gateway.log();
  const auto stub = connect(gateway, own_tls(gateway));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(health(*stub).ok());
  const auto status = health(*stub);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "gRPC rate limit exceeded");
}

TEST(Gateway, HealthIsOnItsOwnPort) {
  GatewayProcess gateway;
  const int port = test::free_port();
  ASSERT_TRUE(gateway.start({"--health-port", std::to_string(port)})) << gateway.log();
  const auto get = [&](const char* path) { return output_of(cat("curl -sS -i --max-time 5 http://127.0.0.1:", port, path)); };
  EXPECT_THAT(get("/healthz"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(get("/none"), HasSubstr("HTTP/1.1 404"));
  std::string ready;
  for (int i = 0; i < 200 && ready.find("200 OK") == std::string::npos; ++i) ready = get("/readyz");
  EXPECT_THAT(ready, HasSubstr(R"("status":"healthy","version":"0.1.5","checks":{"database":{"status":"healthy","latency_ms":)"));
}

int exit_of(GatewayProcess& gateway, const std::vector<std::string>& flags) {
  gateway.launch(flags);
  return gateway.wait();
}

TEST(GatewayStart, EachMistakeEndsItWithItsTextAndNothingListens) {
  GatewayProcess gateway;
  struct Case {
    std::vector<std::string> flags;
    int code;
    const char* text;
  };
  for (const auto& one : {Case{{"--no-such-flag"}, 2, "unknown flag '--no-such-flag'"},
                          Case{{"--config", "/nonexistent.toml"}, 1, "failed to read gateway config file '/nonexistent.toml'"},
                          Case{{"--port", "1", "--health-port", "1"}, 1, "must be different (both set to 1)"},
                          Case{{"--bind-address", "0.0.0.0", "--disable-tls"}, 1, "no user authentication is configured"},
                          Case{{"--db-url", "mysql://u:p@h/d"}, 1, "unsupported database URL scheme: mysql:"},
                          Case{{"--compute-driver", "docker"}, 1, "is not available in this build"},
                          Case{{"--tls-cert", "/x", "--tls-key", "/y"}, 1, "failed to open cert file: /x"}}) {
    EXPECT_EQ(exit_of(gateway, one.flags), one.code) << one.text;
    EXPECT_THAT(gateway.log(), HasSubstr(one.text));
  }
}

TEST(GatewayStart, ABrokenSigningKeyEndsItBeforeTheDatabaseIsMade) {
  GatewayProcess gateway;
  std::ofstream{gateway.tls() + "/jwt/signing.pem", std::ios::trunc} << "broken";
  EXPECT_EQ(exit_of(gateway, {"--port", "0"}), 1);
  EXPECT_THAT(gateway.log(), HasSubstr("invalid sandbox launch-signing bundle"));
  EXPECT_FALSE(std::filesystem::exists(gateway.state() + "/gateway/openshell.db"));
}

TEST(GatewayStart, ATakenPortEndsIt) {
  GatewayProcess first;
  ASSERT_TRUE(first.start()) << first.log();
  GatewayProcess second;
  EXPECT_EQ(exit_of(second, {"--port", std::to_string(first.port())}), 1);
  EXPECT_THAT(second.log(), HasSubstr(cat("failed to bind to 127.0.0.1:", first.port())));
}

TEST(GatewayStart, PreflightChecksAndWritesNothing) {
  GatewayProcess gateway;
  EXPECT_EQ(exit_of(gateway, {"config", "preflight"}), 0) << gateway.log();
  EXPECT_FALSE(std::filesystem::exists(gateway.state() + "/gateway"));
  gateway.config("[openshell.gateway]\nunknown = 1\n");
  EXPECT_EQ(exit_of(gateway, {"config", "preflight"}), 1);
  EXPECT_THAT(gateway.log(), HasSubstr("category=malformed"));
  EXPECT_THAT(gateway.log(), HasSubstr("unknown key 'unknown'"));
}

}  // namespace
}  // namespace openshell::gateway
