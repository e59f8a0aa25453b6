#include "programs/gateway/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "programs/gateway/local_pki.hpp"
#include "tests/unit/gateway/temporary_directory.hpp"

namespace openshell::gateway {
namespace {

using testing::Contains;
using testing::HasSubstr;

class Config : public testing::Test {
 protected:
  void SetUp() override {
    places_.state = directory_.file("state");
    places_.run = directory_.file("run");
    places_.tls = directory_.file("tls");
    ASSERT_TRUE(generate_certs({places_.tls, {}, ""}).ok());
  }
  absl::StatusOr<GatewayConfig> merged(const std::vector<std::string>& flags, const std::string& body = "",
                                       std::map<std::string, std::string, std::less<>> variables = {}) {
    const Environment environment{std::move(variables)};
    auto line = CommandLine::parse(flags, environment);
    if (!line.ok()) return line.status();
    auto file = parse_settings("[openshell]\nversion = 2\n" + body, "g.toml");
    if (!file.ok()) return file.status();
    return merge(*line, environment, *file, places_);
  }
  std::string error(const std::vector<std::string>& flags, const std::string& body = "",
                    std::map<std::string, std::string, std::less<>> variables = {}) {
    return std::string{merged(flags, body, std::move(variables)).status().message()};
  }
  TemporaryDirectory directory_;
  Places places_;
};

TEST_F(Config, WithNothingItIsLoopbackTlsAndCertificateUsers) {
  const auto config = merged({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->bind.text(), "127.0.0.1:17670");
  EXPECT_FALSE(config->health || config->metrics || config->operator_bind);
  EXPECT_EQ(config->tls->client_ca, places_.tls + "/ca.crt");
  EXPECT_EQ(config->guest_tls_ca, places_.tls + "/ca.crt");
  EXPECT_TRUE(config->mtls_users);
  EXPECT_TRUE(config->tokens);
  EXPECT_FALSE(config->tokens->ttl) << "local launch tokens do not expire";
  EXPECT_EQ(config->database_url, "sqlite:" + places_.state + "/gateway/openshell.db");
  EXPECT_EQ(config->compute_driver, "process");
  EXPECT_EQ(config->reported_version, "0.1.5");
  EXPECT_EQ(config->process.state_dir, places_.state + "/process-driver");
}

TEST_F(Config, EachKeyMergesAlone) {
  const std::string file =
      "[openshell.gateway]\nbind_address='127.0.0.9:5'\nlog_level='debug'\nhealth_bind_address='127.0.0.1:8081'\ngrpc_rate_limit_window_"
      "seconds=30\n";
  auto config = merged({"--port", "6", "--grpc-rate-limit-requests", "20"}, file, {{"OPENSHELL_LOG_LEVEL", "info"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->bind.text(), "127.0.0.9:6");
  EXPECT_EQ(config->log_level, log::Level::kInfo);
  EXPECT_EQ(config->health->text(), "127.0.0.1:8081");
  EXPECT_EQ(config->rate_limit_requests, 20U);
  config = merged({"--health-port", "9999"}, file);
  EXPECT_EQ(config.status().ok() ? config->health->text() : "", "");
  EXPECT_THAT(error({"--health-port", "9999"}, file), HasSubstr("gRPC rate limiting requires both"));
  EXPECT_EQ(merged({"--health-port", "9999", "--grpc-rate-limit-requests", "0"}, file)->health->text(), "127.0.0.9:9999");
  EXPECT_FALSE(merged({"--health-port", "0", "--grpc-rate-limit-requests", "0"}, file)->health);
}

TEST_F(Config, WhatHasNoEffectIsNamedOnce) {
  const std::string gateway =
      "[openshell.gateway]\nname='mine'\nserver_sans=['apps.example.com']\nenable_loopback_service_http=true\n"
      "enable_websocket_tunnel=false\nssh_session_ttl_secs=60\noperator_socket='/run/o.sock'\noperator_bind_address='127.0.0.1:7788'\n"
      "image_preparation_timeout_seconds=60\n[openshell.gateway.tls]\ncert_path='" +
      places_.tls + "/server/tls.crt'\nkey_path='" + places_.tls + "/server/tls.key'\nexternal_server_names=['a.example.com']\n";
  const auto config = merged({"--server-san", "b.example.com"}, gateway);
  ASSERT_TRUE(config.ok()) << config.status();
  for (const char* key : {"name", "server_sans", "enable_loopback_service_http", "enable_websocket_tunnel",
                          "image_preparation_timeout_seconds", "external_server_names"}) {
    const std::string text = std::string{key} + " has no effect in this build: ";
    EXPECT_EQ(std::count_if(config->warnings.begin(), config->warnings.end(), [&](const auto& w) { return w.find(text) == 0; }), 1) << key;
  }
  EXPECT_THAT(config->warnings, testing::Not(Contains(HasSubstr("operator_"))));
  EXPECT_TRUE(merged({})->warnings.empty()) << "nothing is said of what was not set";
  EXPECT_THAT(merged({"--enable-websocket-tunnel", "true"})->warnings, Contains(HasSubstr("enable_websocket_tunnel has no effect")));
}

TEST_F(Config, TheOutageLimitFitsTheSupervisorsFlag) {
  const std::string table = "[openshell.gateway.failure_handling]\ngateway_outage_limit_secs=";
  EXPECT_EQ(merged({})->gateway_outage_limit_secs, 120U);
  EXPECT_EQ(merged({}, table + "7\n")->gateway_outage_limit_secs, 7U);
  EXPECT_EQ(merged({}, table + "4294967295\n")->gateway_outage_limit_secs, 4'294'967'295U);
  EXPECT_THAT(error({}, table + "4294967296\n"), HasSubstr("failure_handling.gateway_outage_limit_secs: must be between 1 and 4294967295"));
  EXPECT_NE(error({}, table + "0\n"), "");
}

TEST_F(Config, GW_01_NobodyListensToTheWorldWithoutUsers) {
  const std::string text = "no user authentication is configured: bind to a loopback address or a Unix socket, or configure OIDC or mTLS";
  EXPECT_EQ(error({"--bind-address", "0.0.0.0", "--enable-mtls-auth", "false"}), text);
  EXPECT_EQ(error({"--bind-address", "0.0.0.0", "--disable-tls"}), text);
  EXPECT_EQ(error({"--bind-address", "0.0.0.0"}), "");
  const auto open = merged({"--bind-address", "0.0.0.0", "--disable-tls"}, "[openshell.gateway.auth]\nallow_unauthenticated_users=true\n");
  ASSERT_TRUE(open.ok());
  EXPECT_THAT(open->warnings, Contains(HasSubstr("Unauthenticated user access enabled")));
}

TEST_F(Config, TlsAndUserCombinations) {
  EXPECT_THAT(error({"--disable-tls", "--tls-client-ca", "x"}), HasSubstr("mutually exclusive"));
  EXPECT_THAT(error({"--disable-tls", "--enable-mtls-auth", "true"}), HasSubstr("mTLS user authentication requires TLS"));
  EXPECT_THAT(error({"--tls-cert", places_.tls + "/server/tls.crt"}), HasSubstr("--tls-key is required when TLS is enabled"));
  EXPECT_THAT(error({"--tls-key", "x"}), HasSubstr("--tls-cert is required when TLS is enabled"));
  const std::vector<std::string> own{"--tls-cert", places_.tls + "/server/tls.crt", "--tls-key", places_.tls + "/server/tls.key"};
  EXPECT_FALSE(merged(own)->mtls_users) << "no client CA: certificates make nobody a user";
  auto forced = own;
  forced.insert(forced.end(), {"--enable-mtls-auth", "true"});
  EXPECT_THAT(error(forced), HasSubstr("requires --tls-client-ca"));
  EXPECT_THAT(error(own, "[openshell.gateway.mtls_auth]\noperator_enabled=true\n"),
              HasSubstr("operator authentication requires TLS and a client CA"));
  EXPECT_FALSE(merged({}, "[openshell.gateway.mtls_auth]\nenabled=false\n")->mtls_users);
  EXPECT_TRUE(merged({}, "[openshell.gateway.mtls_auth]\noperator_enabled=true\n")->mtls_users);
  EXPECT_THAT(error({"--disable-tls"}, "[openshell.gateway]\nguest_tls_ca='x'\n"), HasSubstr("invalid gateway guest TLS configuration"));
}

TEST_F(Config, TlsFilesAreReadBeforeAnythingStarts) {
  const auto with = [&](const std::string& cert, const std::string& key) { return error({"--tls-cert", cert, "--tls-key", key}); };
  const std::string cert = places_.tls + "/server/tls.crt";
  const std::string key = places_.tls + "/server/tls.key";
  EXPECT_THAT(with("/nonexistent", key), HasSubstr("failed to open cert file"));
  EXPECT_THAT(with(directory_.write("empty", ""), key), HasSubstr("no certificates found in file"));
  EXPECT_THAT(with(cert, cert), HasSubstr("no private key found in file"));
  EXPECT_THAT(with(cert, places_.tls + "/client/tls.key"), HasSubstr("is not that of the certificate"));
  std::filesystem::remove(places_.tls + "/client/tls.key");
  EXPECT_THAT(error({}), HasSubstr("partial local TLS state in"));
}

TEST_F(Config, PortsDiffer) {
  EXPECT_EQ(error({"--port", "5", "--health-port", "5"}), "--port and --health-port must be different (both set to 5)");
  EXPECT_EQ(error({"--health-port", "5", "--metrics-port", "5"}), "--health-port and --metrics-port must be different (both set to 5)");
  EXPECT_THAT(error({}, "[openshell.gateway]\noperator_bind_address='127.0.0.1:17670'\n"),
              HasSubstr("--port and operator_bind_address must be different"));
  EXPECT_THAT(error({}, "[openshell.gateway]\noperator_bind_address='10.0.0.1:1'\n"),
              HasSubstr("must be a loopback address (got 10.0.0.1)"));
  EXPECT_THAT(error({}, "[openshell.gateway]\noperator_socket='x'\n"), HasSubstr("operator_socket must be an absolute path"));
  EXPECT_THAT(error({"--port", "65536"}), HasSubstr("--port must be a number from 0 to 65535"));
  EXPECT_THAT(error({"--bind-address", "localhost"}), HasSubstr("--bind-address must be an IP address"));
}

TEST_F(Config, DriverSelection) {
  EXPECT_EQ(merged({}, "[openshell.gateway]\ncompute_driver=' Process '\n")->compute_driver, "process");
  EXPECT_THAT(error({"--compute-driver", "docker"}), HasSubstr("compute driver 'docker' is not available in this build"));
  EXPECT_THAT(error({"--compute-driver", "a b"}), HasSubstr("invalid compute driver name 'a b'"));
  EXPECT_THAT(error({}, "", {{"OPENSHELL_DRIVERS", "a,b"}}), HasSubstr("OPENSHELL_DRIVERS must contain exactly one"));
  EXPECT_THAT(error({"--compute-driver", "process"}, "", {{"OPENSHELL_DRIVERS", "docker"}}), HasSubstr("conflicts with the canonical"));
  EXPECT_THAT(merged({}, "", {{"OPENSHELL_DRIVERS", "process"}})->warnings, Contains(HasSubstr("deprecated")));
}

TEST_F(Config, WhatIsNotBuiltIsRefusedNotIgnored) {
  EXPECT_THAT(error({}, "[[openshell.gateway.interceptors]]\nname='x'\n"), HasSubstr("gateway interceptor initialization failed"));
  EXPECT_THAT(error({}, "[[openshell.supervisor.middleware]]\nname='x'\n"), HasSubstr("middleware registration failed"));
  EXPECT_THAT(error({}, "[openshell.gateway]\ncredential_drivers=['vault']\n"), HasSubstr("credential drivers are not available"));
}

TEST_F(Config, OidcIsOnExactlyWhenAnIssuerIsNamed) {
  const std::string table = "[openshell.gateway.oidc]\nissuer='https://id.test'\naudience='aud'\n";
  EXPECT_FALSE(merged({})->oidc);
  EXPECT_FALSE(merged({}, "", {{"OPENSHELL_OIDC_ISSUER", ""}})->oidc) << "an empty variable sets nothing";
  const auto file = merged({}, table, {{"OPENSHELL_OIDC_ISSUER", ""}});
  ASSERT_TRUE(file.ok() && file->oidc) << file.status();
  EXPECT_EQ(file->oidc->issuer.issuer, "https://id.test");
  EXPECT_EQ(file->oidc->issuer.audience, "aud");
  EXPECT_EQ(file->oidc->issuer.roles_claim, "realm_access.roles");
  EXPECT_EQ(file->oidc->issuer.key_lifetime.count(), 3600);
  EXPECT_EQ(file->oidc->admin_role, "openshell-admin");
  EXPECT_FALSE(file->mtls_users) << "certificates are users by default only where no issuer is";
  EXPECT_TRUE(merged({"--enable-mtls-auth", "true"}, table)->mtls_users);
  const auto flag = merged({"--oidc-issuer", "https://other.test", "--oidc-audience", "b", "--oidc-jwks-ttl", "7", "--oidc-scopes-claim",
                            "scope", "--oidc-jwks-allowed-origins", "https://a.test,https://b.test"},
                           table);
  ASSERT_TRUE(flag.ok()) << flag.status();
  EXPECT_EQ(flag->oidc->issuer.issuer, "https://other.test");
  EXPECT_EQ(flag->oidc->issuer.audience, "b");
  EXPECT_EQ(flag->oidc->issuer.key_lifetime.count(), 7);
  EXPECT_EQ(flag->oidc->issuer.scopes_claim, "scope");
  EXPECT_EQ(flag->oidc->issuer.key_origins.size(), 2U);
  EXPECT_EQ(error({"--bind-address", "0.0.0.0", "--disable-tls"}, table), "") << "tokens are user authentication";
}

TEST_F(Config, OidcSettingsThatWouldLetTooManyInStopTheStart) {
  const std::string table = "[openshell.gateway.oidc]\nissuer='https://id.test'\naudience='aud'\n";
  EXPECT_EQ(
      error({}, table + "user_role=''\n"),
      "OIDC RBAC misconfiguration: admin_role=\"openshell-admin\", user_role=\"\". Either set both roles (RBAC mode) or leave both empty "
      "(authentication-only mode).");
  EXPECT_EQ(error({}, table + "user_role=''\nadmin_role=''\n"), "");
  EXPECT_THAT(error({"--oidc-jwks-ttl", "0"}, table), HasSubstr("jwks_ttl_secs: must be between 1 and"));
  EXPECT_EQ(error({"--oidc-jwks-ttl", "4294967295"}, table), "");
  EXPECT_THAT(error({"--oidc-jwks-ttl", "4294967296"}, table), HasSubstr("jwks_ttl_secs"));
  EXPECT_THAT(error({"--oidc-jwks-ttl", "1h"}, table), HasSubstr("jwks_ttl_secs"));
  EXPECT_THAT(error({"--oidc-audience", ""}, table), HasSubstr("audience: must not be empty"));
  EXPECT_THAT(error({"--oidc-jwks-allowed-origins", "http://a.test"}, table),
              HasSubstr("jwks_allowed_origins: 'http://a.test' must start with https://"));
  EXPECT_THAT(error({"--oidc-dangerously-allow-insecure-http", "yes"}, table), HasSubstr("neither true nor false"));
  EXPECT_THAT(error({"--oidc-ca-bundle", places_.tls + "/ca.key"}, table),
              HasSubstr("ca_bundle: PEM bundle contains a non-certificate block"));
  EXPECT_THAT(error({"--oidc-ca-bundle", places_.tls}, table), HasSubstr("is not a regular file"));
  EXPECT_EQ(error({"--oidc-ca-bundle", places_.tls + "/ca.crt"}, table), "");
}

TEST_F(Config, SupervisorSettings) {
  const auto field = [&](const std::string& body) { return error({}, body); };
  EXPECT_THAT(field("[openshell.supervisor]\npoll_interval_secs=0\n"),
              HasSubstr("openshell.supervisor.poll_interval_secs: must be between 1 and 3600"));
  EXPECT_EQ(field("[openshell.supervisor]\npoll_interval_secs=3600\n"), "");
  EXPECT_THAT(field("[openshell.supervisor.network]\nresolver=['dns:53']\n"), HasSubstr("entry 'dns:53' is not an address:port"));
  EXPECT_THAT(field("[openshell.supervisor.network]\nresolver=[]\n"), HasSubstr("omit the field to use the host's resolver"));
  EXPECT_THAT(field("[openshell.supervisor.network]\nresolver=['1.1.1.1:53','1.1.1.1:53']\n"), HasSubstr("is there twice"));
  const auto bundle = [&](const std::string& path) {
    return field("[openshell.supervisor.network]\nadditional_ca_bundle='" + path + "'\n");
  };
  EXPECT_EQ(bundle(places_.tls + "/ca.crt"), "");
  EXPECT_THAT(bundle(places_.tls + "/ca.key"), HasSubstr("PEM bundle contains a non-certificate block"));
  EXPECT_THAT(bundle(directory_.write("empty", "")), HasSubstr("PEM bundle does not contain a certificate"));
}

TEST_F(Config, TheProcessTable) {
  const auto table = [&](const std::string& body) { return merged({}, "[openshell.drivers.process]\n" + body); };
  EXPECT_TRUE(table("keep_on_shutdown=true\n")->keep_on_shutdown);
  EXPECT_EQ(table("sandbox_uid_range='1900000000-1900000015'\n")->process.sandbox_uid_range.last, 1'900'000'015U);
  for (const char* range : {"1900000000-1900000014", "65535-65550", "9-1", "x", "1900000000"}) {
    EXPECT_FALSE(table(std::string{"sandbox_uid_range='"} + range + "'\n").ok()) << range;
  }
  EXPECT_FALSE(table("host_gateway_ip='localhost'\n").ok());
}

TEST(Address, LiteralsWithPorts) {
  EXPECT_EQ(parse_address("f", "[::1]:80")->text(), "[::1]:80");
  EXPECT_TRUE(parse_address("f", "127.1.2.3:80")->loopback());
  EXPECT_TRUE(parse_address("f", "[::1]:80")->loopback());
  EXPECT_FALSE(parse_address("f", "128.0.0.1:80")->loopback());
  for (const char* bad : {"", "127.0.0.1", "localhost:80", "::1:80", "[127.0.0.1]:80", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536"})
    EXPECT_FALSE(parse_address("f", bad).ok()) << bad;
}

}  // namespace
}  // namespace openshell::gateway
