#include "programs/gateway/local_pki.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <iterator>

#include "pki/certificate.hpp"
#include "tests/unit/gateway/temporary_directory.hpp"

namespace openshell::gateway {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::string content(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}
unsigned mode(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

class LocalPki : public testing::Test {
 protected:
  GenerateOptions options(std::vector<std::string> names = {}) const { return {tls_, std::move(names), ""}; }
  TemporaryDirectory directory_;
  std::string tls_ = directory_.file("tls");
};

TEST_F(LocalPki, MakesCertificatesThatChainAndKeysNobodyElseReads) {
  ASSERT_TRUE(generate_certs(options({"host.openshell.internal", "10.0.0.9"})).ok());
  for (const char* key : {"ca.key", "server/tls.key", "client/tls.key", "jwt/signing.pem"}) EXPECT_EQ(mode(tls_ + "/" + key), 0600U) << key;
  for (const char* folder : {"", "/server", "/client", "/jwt"}) EXPECT_EQ(mode(tls_ + folder), 0700U) << folder;
  EXPECT_FALSE(std::filesystem::exists(tls_ + "/.certgen.tmp"));
  const auto ca = *pki::Certificate::from_pem(content(tls_ + "/ca.crt"));
  const auto server = *pki::Certificate::from_pem(content(tls_ + "/server/tls.crt"));
  const auto client = *pki::Certificate::from_pem(content(tls_ + "/client/tls.crt"));
  EXPECT_TRUE(pki::verify_chain(server, {}, {ca}, pki::Usage::kServer).ok());
  EXPECT_TRUE(pki::verify_chain(client, {}, {ca}, pki::Usage::kClient).ok());
  EXPECT_EQ(client.common_name(), "openshell-client");
  EXPECT_THAT(client.organizational_units(), Contains("openshell-user"));
  for (const char* name : {"localhost", "*.openshell.localhost", "host.openshell.internal"})
    EXPECT_THAT(server.dns_names(), Contains(name));
  EXPECT_THAT(server.ip_addresses(), Contains("10.0.0.9"));
  EXPECT_EQ(content(tls_ + "/jwt/kid").size(), 32U);
  EXPECT_EQ(*find_tls_bundle(tls_), BundleState::kComplete);
  EXPECT_EQ(*find_jwt_bundle(tls_), BundleState::kComplete);
}

TEST_F(LocalPki, KeepsWhatIsCompleteAndRenewsTlsForAMissingNameOnly) {
  ASSERT_TRUE(generate_certs(options()).ok());
  const auto server = content(tls_ + "/server/tls.crt");
  const auto kid = content(tls_ + "/jwt/kid");
  ASSERT_TRUE(generate_certs(options()).ok());
  EXPECT_EQ(content(tls_ + "/server/tls.crt"), server);
  ASSERT_TRUE(generate_certs(options({"new.example.com"})).ok());
  EXPECT_NE(content(tls_ + "/server/tls.crt"), server);
  EXPECT_EQ(content(tls_ + "/jwt/kid"), kid);
  std::filesystem::remove_all(tls_ + "/jwt");
  ASSERT_TRUE(generate_certs(options({"new.example.com"})).ok());
  EXPECT_NE(content(tls_ + "/jwt/kid"), kid);
}

TEST_F(LocalPki, ARefusedPartialStateIsNotTouched) {
  ASSERT_TRUE(generate_certs(options()).ok());
  std::filesystem::remove(tls_ + "/server/tls.key");
  const auto ca = content(tls_ + "/ca.crt");
  EXPECT_THAT(std::string{generate_certs(options()).status().message()}, HasSubstr("partial PKI state in " + tls_));
  EXPECT_EQ(content(tls_ + "/ca.crt"), ca);
  EXPECT_FALSE(std::filesystem::exists(tls_ + "/server/tls.key"));
  EXPECT_THAT(std::string{find_tls_bundle(tls_).status().message()}, HasSubstr("partial local TLS state in"));
  std::filesystem::remove(tls_ + "/jwt/kid");
  EXPECT_THAT(std::string{find_jwt_bundle(tls_).status().message()}, HasSubstr("partial local sandbox JWT state in"));
}

TEST_F(LocalPki, TheClientBundleIsReplacedWholeAndAFailureIsAWarning) {
  auto with_copy = options();
  with_copy.client_copy = directory_.file("config/gateways/openshell/mtls");
  ASSERT_TRUE(generate_certs(with_copy).ok());
  EXPECT_EQ(content(with_copy.client_copy + "/tls.key"), content(tls_ + "/client/tls.key"));
  EXPECT_EQ(mode(with_copy.client_copy + "/tls.key"), 0600U);
  EXPECT_EQ(mode(with_copy.client_copy), 0700U);
  std::filesystem::remove_all(with_copy.client_copy);
  ASSERT_TRUE(generate_certs(with_copy).ok());
  EXPECT_TRUE(std::filesystem::exists(with_copy.client_copy + "/ca.crt")) << "a deleted copy comes back";
  EXPECT_FALSE(std::filesystem::exists(with_copy.client_copy + ".bak"));
  directory_.write("blocked", "a file where a directory should be");
  with_copy.client_copy = directory_.file("blocked/mtls");
  const auto said = generate_certs(with_copy);
  ASSERT_TRUE(said.ok());
  EXPECT_THAT(*said, Contains(HasSubstr("warning: client bundle not copied")));
}

TEST_F(LocalPki, ADryRunShowsFiveThingsAndWritesNothing) {
  const auto text = *dry_run(options());
  EXPECT_FALSE(std::filesystem::exists(tls_));
  std::size_t certificates = 0;
  for (auto at = text.find("-----BEGIN CERTIFICATE-----"); at != std::string::npos; at = text.find("-----BEGIN CERTIFICATE-----", at + 1))
    ++certificates;
  EXPECT_EQ(certificates, 3U);
}

}  // namespace
}  // namespace openshell::gateway
