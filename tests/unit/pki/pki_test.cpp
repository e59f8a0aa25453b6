#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "pki/certificate.hpp"
#include "pki/keys.hpp"
#include "pki/session.hpp"

namespace openshell::pki {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

CertificateAuthority authority(KeyKind kind = KeyKind::kP256) {
  return CertificateAuthority::create({.common_name = "openshell-ca", .organization = "openshell", .key_kind = kind}).value();
}

// A directory of this test's own, removed with it.
class Directory {
 public:
  Directory() {
    char name[] = "/tmp/pki_test.XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, std::string_view text) const {
    std::ofstream(path_ + "/" + name) << text;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

// The judge that is not ours: the openssl program. Returns its exit status, its words in `said`.
int run(const std::string& command, std::string* said = nullptr) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  std::string all;
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) all.append(buffer, n);
  if (said != nullptr) *said = all;
  return pclose(pipe);
}

TEST(Keys, RoundTripThroughPemAndStayPrivate) {
  for (const KeyKind kind : {KeyKind::kP256, KeyKind::kEd25519}) {
    const auto key = PrivateKey::generate(kind).value();
    const Secret pem = key.to_pem().value();
    EXPECT_THAT(std::string(pem.reveal()), StartsWith("-----BEGIN PRIVATE KEY-----\n"));
    const auto again = PrivateKey::from_pem(pem).value();
    EXPECT_EQ(key.public_pem().value(), again.public_pem().value());
    EXPECT_THAT(key.public_pem().value(), StartsWith("-----BEGIN PUBLIC KEY-----\n"));
    EXPECT_EQ(key_id(key).value().size(), 32u);
    EXPECT_EQ(key_id(key).value(), key_id(again).value());
  }
}

TEST(Keys, RefuseWhatIsNoKey) {
  EXPECT_THAT(PrivateKey::from_pem(Secret{"hello"}).status().message(), HasSubstr("no private key found"));
  EXPECT_FALSE(PrivateKey::from_pem(Secret{std::string(kMaxKeyPemBytes + 1, 'x')}).ok());
  EXPECT_THAT(std::string(PrivateKey::from_pem(Secret{std::string(kMaxKeyPemBytes, 'x')}).status().message()),
              HasSubstr("no private key found"));
}

TEST(Keys, SkipsOtherBlocksAndReadsSec1) {
  Directory dir;
  std::string pem;
  ASSERT_EQ(run("openssl ecparam -name prime256v1 -genkey", &pem), 0);  // EC PARAMETERS first, then EC PRIVATE KEY
  EXPECT_TRUE(PrivateKey::from_pem(Secret{pem}).ok());
}

TEST(Certificates, OpensslVerifiesServerAndClient) {
  for (const KeyKind kind : {KeyKind::kP256, KeyKind::kEd25519}) {
    const auto ca = authority(kind);
    LeafProfile server{.common_name = "openshell-server"};
    server.dns_names = {"localhost", "*.openshell.localhost"};
    server.ip_addresses = {"127.0.0.1", "::1"};
    const auto leaf = ca.issue(server, kind).value();
    const auto client =
        ca.issue({.common_name = "openshell-client", .organizational_units = {"openshell-user"}, .usage = Usage::kClient}, kind).value();

    Directory dir;
    const auto root = dir.write("ca.crt", ca.certificate().to_pem());
    const auto server_path = dir.write("server.crt", leaf.certificate.to_pem());
    const auto client_path = dir.write("client.crt", client.certificate.to_pem());
    const std::string verify = "openssl verify -x509_strict -CAfile " + root;
    EXPECT_EQ(run(verify + " -purpose sslserver -verify_hostname a.openshell.localhost " + server_path), 0);
    EXPECT_EQ(run(verify + " -purpose sslserver -verify_ip ::1 " + server_path), 0);
    EXPECT_EQ(run(verify + " -purpose sslclient " + client_path), 0);
    EXPECT_NE(run(verify + " -purpose sslclient " + server_path), 0);
    EXPECT_NE(run(verify + " -purpose sslserver -verify_hostname other.test " + server_path), 0);

    EXPECT_THAT(leaf.certificate.dns_names(), ElementsAre("localhost", "*.openshell.localhost"));
    EXPECT_THAT(leaf.certificate.ip_addresses(), ElementsAre("127.0.0.1", "::1"));
    EXPECT_THAT(client.certificate.organizational_units(), ElementsAre("openshell-user"));
    EXPECT_EQ(client.certificate.common_name(), "openshell-client");
    EXPECT_EQ(leaf.certificate.not_before(), kLongPast);
    EXPECT_EQ(leaf.certificate.not_after(), kLongFuture);
    EXPECT_TRUE(ca.certificate().is_ca());
    EXPECT_FALSE(leaf.certificate.is_ca());
  }
}

TEST(Certificates, VerifyChainFailsClosed) {
  const auto ca = authority();
  const auto other = authority();  // same name, another key
  const auto leaf = ca.issue(server_profile("api.test"), KeyKind::kP256).value();
  EXPECT_TRUE(verify_chain(leaf.certificate, {}, {ca.certificate()}, Usage::kServer).ok());
  EXPECT_FALSE(verify_chain(leaf.certificate, {}, {ca.certificate()}, Usage::kClient).ok());
  EXPECT_FALSE(verify_chain(leaf.certificate, {}, {other.certificate()}, Usage::kServer).ok());
  EXPECT_FALSE(verify_chain(leaf.certificate, {}, {}, Usage::kServer).ok());
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  LeafProfile old = server_profile("api.test");
  old.not_before = now - std::chrono::hours{2};
  old.not_after = now - std::chrono::hours{1};
  const auto expired = ca.issue(old, KeyKind::kP256).value();
  EXPECT_THAT(std::string(verify_chain(expired.certificate, {}, {ca.certificate()}, Usage::kServer).message()), HasSubstr("expired"));
}

// The name of an intercepted host comes from a workload's ClientHello.
TEST(Certificates, HostileNamesAddNothing) {
  const auto ca = authority();
  const auto key = PrivateKey::generate(KeyKind::kP256).value();
  for (const char* name : {"a.test,DNS:bank.test", "a.test\nDNS:bank.test", "a b", "", "a\xc3\xa9.test", "email:x"}) {
    EXPECT_FALSE(ca.issue(server_profile(name), key).ok()) << name;
  }
  EXPECT_FALSE(ca.issue(server_profile(std::string_view("a\0b", 3)), key).ok());
}

TEST(Certificates, LongHostHasNoCommonNameAndACriticalName) {
  const auto ca = authority();
  const std::string host = std::string(60, 'a') + "." + std::string(60, 'b') + ".test";
  const auto leaf = ca.issue(server_profile(host), KeyKind::kP256).value();
  EXPECT_EQ(leaf.certificate.common_name(), "");
  Directory dir;
  const auto root = dir.write("ca.crt", ca.certificate().to_pem());
  const auto path = dir.write("leaf.crt", leaf.certificate.to_pem());
  EXPECT_EQ(run("openssl verify -x509_strict -purpose sslserver -verify_hostname " + host + " -CAfile " + root + " " + path), 0);
}

TEST(Certificates, BoundsOfALeaf) {
  const auto ca = authority();
  const auto key = PrivateKey::generate(KeyKind::kP256).value();
  LeafProfile profile{.common_name = std::string(kMaxCommonNameBytes, 'x')};
  EXPECT_TRUE(ca.issue(profile, key).ok());
  profile.common_name += 'x';
  EXPECT_FALSE(ca.issue(profile, key).ok());
  profile.common_name = "x";
  profile.dns_names.assign(kMaxSubjectNames, "a.test");
  EXPECT_TRUE(ca.issue(profile, key).ok());
  profile.ip_addresses = {"127.0.0.1"};
  EXPECT_FALSE(ca.issue(profile, key).ok());
  EXPECT_FALSE(ca.issue({.common_name = "x", .ip_addresses = {"1.2.3"}}, key).ok());
  EXPECT_FALSE(ca.issue({.common_name = "x", .not_before = kLongFuture, .not_after = kLongPast}, key).ok());
}

TEST(Certificates, BundleIsBoundedAndPublic) {
  const auto ca = authority();
  const std::string one = ca.certificate().to_pem();
  EXPECT_EQ(certificates_from_pem("# a comment\n" + one + one)->size(), 2u);
  EXPECT_THAT(std::string(certificates_from_pem("nothing").status().message()), HasSubstr("no certificates found"));
  EXPECT_THAT(std::string(certificates_from_pem(one + std::string(ca.key().to_pem()->reveal())).status().message()),
              HasSubstr("private key"));
  EXPECT_THAT(std::string(certificates_from_pem(one + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").status().message()),
              HasSubstr("certificate 2"));
  EXPECT_FALSE(certificates_from_pem(one + "-----BEGIN CERTIFICATE-----\n!!!!\n").ok());
  EXPECT_FALSE(certificates_from_pem(std::string(kMaxBundlePemBytes + 1, ' ')).ok());
  std::string many;
  for (std::size_t i = 0; i < kMaxBundleCertificates; ++i) many += one;
  EXPECT_EQ(certificates_from_pem(many)->size(), kMaxBundleCertificates);
  EXPECT_THAT(std::string(certificates_from_pem(many + one).status().message()), HasSubstr("more than"));
}

TEST(Certificates, LoadRefusesAForeignKeyAndALeaf) {
  const auto ca = authority();
  const auto other = authority();
  EXPECT_TRUE(CertificateAuthority::load(ca.certificate().to_pem(), ca.key().to_pem().value()).ok());
  EXPECT_FALSE(CertificateAuthority::load(ca.certificate().to_pem(), other.key().to_pem().value()).ok());
  const auto leaf = ca.issue(server_profile("a.test"), KeyKind::kP256).value();
  EXPECT_FALSE(CertificateAuthority::load(leaf.certificate.to_pem(), leaf.key.to_pem().value()).ok());
}

// RT-25: the sandbox side accepts one client only, the one of this launch.
TEST(Session, RT_25_BothEndsOfOneLaunchAndNoOther) {  // RT-74, RT-75
  const SessionId id{"0d6e2a50-3a3f-4f59-9d3e-0f6a4a0f3c11"};
  const auto one = make_session_certificates(id).value();
  const auto two = make_session_certificates(id).value();
  EXPECT_EQ(one.server_name, "sandbox.0d6e2a50-3a3f-4f59-9d3e-0f6a4a0f3c11.openshell.internal");
  const auto root = Certificate::from_pem(one.ca_certificate).value();
  const auto server = Certificate::from_pem(one.server_certificate).value();
  const auto client = Certificate::from_pem(one.client_certificate).value();
  EXPECT_TRUE(verify_chain(server, {}, {root}, Usage::kServer).ok());
  EXPECT_TRUE(verify_chain(client, {}, {root}, Usage::kClient).ok());
  EXPECT_FALSE(verify_chain(client, {}, {root}, Usage::kServer).ok());
  EXPECT_FALSE(verify_chain(Certificate::from_pem(two.client_certificate).value(), {}, {root}, Usage::kClient).ok());
  EXPECT_THAT(server.dns_names(), ElementsAre(one.server_name));
  EXPECT_EQ(client.common_name(), "OpenShell supervisor");
  EXPECT_EQ(server.common_name(), "OpenShell sandbox runtime");
  EXPECT_EQ(root.common_name(), "OpenShell sandbox session CA");
  EXPECT_TRUE(server.matches(PrivateKey::from_pem(one.server_key).value()));
  EXPECT_TRUE(client.matches(PrivateKey::from_pem(one.client_key).value()));
}

TEST(Session, RefusesIdsThatAreNoLabel) {
  for (const char* id : {"", "A", "a.b", "-a", "a-"}) EXPECT_FALSE(make_session_certificates(SessionId{id}).ok()) << id;
  EXPECT_TRUE(make_session_certificates(SessionId{std::string(63, 'a')}).ok());
  EXPECT_FALSE(make_session_certificates(SessionId{std::string(64, 'a')}).ok());
}

// A real handshake of a client that trusts the CA with a leaf made for its host: what interception does for each new host.
TEST(Certificates, ServeATlsHandshake) {
  const auto ca = authority();
  const auto key = PrivateKey::generate(KeyKind::kP256).value();
  const auto leaf = ca.issue(server_profile("api.test"), key).value();
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> server_context{SSL_CTX_new(TLS_server_method()), SSL_CTX_free};
  ASSERT_EQ(SSL_CTX_use_certificate(server_context.get(), leaf.native()), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(server_context.get(), key.native()), 1);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> client_context{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  SSL_CTX_set_verify(client_context.get(), SSL_VERIFY_PEER, nullptr);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(client_context.get()), ca.certificate().native());
  for (const auto& [host, accepted] : {std::pair{"api.test", true}, std::pair{"other.test", false}}) {
    const std::unique_ptr<SSL, decltype(&SSL_free)> server{SSL_new(server_context.get()), SSL_free};
    const std::unique_ptr<SSL, decltype(&SSL_free)> client{SSL_new(client_context.get()), SSL_free};
    BIO* near = nullptr;
    BIO* far = nullptr;
    ASSERT_EQ(BIO_new_bio_pair(&near, 0, &far, 0), 1);
    SSL_set_bio(client.get(), near, near);
    SSL_set_bio(server.get(), far, far);
    SSL_set_accept_state(server.get());
    SSL_set_connect_state(client.get());
    ASSERT_EQ(SSL_set1_host(client.get(), host), 1);
    int result = 0;
    for (int round = 0; round < 8 && result != 1; ++round) {
      result = SSL_do_handshake(client.get());
      SSL_do_handshake(server.get());
    }
    EXPECT_EQ(result == 1, accepted) << host;
  }
}

// A leaf per host with a key that exists must cost far less than a millisecond: it lies in the path of a first connection.
TEST(Certificates, LeafForAnExistingKeyIsQuick) {
  const auto ca = authority();
  const auto key = PrivateKey::generate(KeyKind::kP256).value();
  constexpr int kRounds = 200;
  const auto start = std::clock();  // of this process: a busy machine does not count
  for (int i = 0; i < kRounds; ++i) ASSERT_TRUE(ca.issue(server_profile("h" + std::to_string(i) + ".test"), key).ok());
  const auto each_us = static_cast<int>((std::clock() - start) * (1'000'000 / CLOCKS_PER_SEC) / kRounds);
  RecordProperty("leaf_us", each_us);
  std::printf("leaf: %d us\n", each_us);
  EXPECT_LT(each_us, 5'000);
}

}  // namespace
}  // namespace openshell::pki
