#include "cli/registration.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace openshell::cli {
namespace {

namespace fs = std::filesystem;

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() {
    char name[] = "/tmp/openshell-registry-XXXXXX";
    root_ = mkdtemp(name);
    registry_.emplace(root_ / "user", root_ / "system");
  }
  ~RegistryTest() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream{path} << text;
  }
  static std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream{path}.rdbuf();
    return text.str();
  }
  static mode_t mode(const fs::path& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
  }
  void system_gateway(const std::string& name, const std::string& endpoint) {
    write(root_ / "system/gateways" / name / "metadata.json",
          R"({"name": ")" + name + R"(", "gateway_endpoint": ")" + endpoint + R"(", "is_remote": false, "gateway_port": 0})");
  }

  fs::path root_;
  std::optional<Registry> registry_;
};

TEST_F(RegistryTest, SavedRegistrationIsFoundAgainWithTheKeysThatOthersRead) {
  ASSERT_TRUE(registry_->save({.name = "lab", .endpoint = "https://127.0.0.1:17670", .auth_mode = "mtls"}).ok());
  const auto found = registry_->find("lab");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->endpoint, "https://127.0.0.1:17670");
  EXPECT_FALSE(found->from_system);
  EXPECT_EQ(read(root_ / "user/gateways/lab/metadata.json"),
            "{\n  \"auth_mode\": \"mtls\",\n  \"gateway_endpoint\": \"https://127.0.0.1:17670\",\n  \"gateway_port\": 0,\n  \"is_remote\": "
            "false,\n  \"name\": \"lab\"\n}\n");
  EXPECT_EQ(mode(root_ / "user/gateways/lab"), 0700U);
}

TEST_F(RegistryTest, ABrokenUserEntryShadowsTheSystemsInsteadOfFallingBack) {
  system_gateway("lab", "https://system:1");
  EXPECT_EQ(registry_->find("lab")->endpoint, "https://system:1");
  write(root_ / "user/gateways/lab/metadata.json", "{not json");
  EXPECT_FALSE(registry_->find("lab").ok());
  EXPECT_TRUE(registry_->list().empty());
}

TEST_F(RegistryTest, NamesAreOnePathComponent) {
  for (const char* name : {"", ".", "..", "a/b", "/etc"}) EXPECT_FALSE(Registry::check_name(name).ok()) << name;
  EXPECT_TRUE(Registry::check_name("a b").ok());
  EXPECT_EQ(registry_->find("../x").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RegistryTest, ActiveGatewayIsTheUsersThenTheSystems) {
  EXPECT_FALSE(registry_->active());
  write(root_ / "system/active_gateway", " fleet \n");
  EXPECT_EQ(registry_->active(), "fleet");
  ASSERT_TRUE(registry_->set_active("lab").ok());
  EXPECT_EQ(registry_->active(), "lab");
}

TEST_F(RegistryTest, RemovingKeepsTheCertificatesAndRefusesTheSystems) {
  ASSERT_TRUE(registry_->save({.name = "lab", .endpoint = "https://h:1"}).ok());
  ASSERT_TRUE(registry_->set_active("lab").ok());
  write(root_ / "user/gateways/lab/mtls/ca.crt", "pem");
  ASSERT_TRUE(registry_->remove("lab").ok());
  EXPECT_FALSE(registry_->active());
  EXPECT_TRUE(fs::exists(root_ / "user/gateways/lab/mtls/ca.crt"));
  EXPECT_EQ(registry_->remove("lab").code(), absl::StatusCode::kNotFound);
  system_gateway("fleet", "https://system:1");
  EXPECT_EQ(registry_->remove("fleet").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(registry_->find("fleet").ok());
}

TEST_F(RegistryTest, ABundleIsReplacedAsAWholeOrNotAtAll) {
  write(root_ / "b/ca.crt", "ca1");
  write(root_ / "b/tls.crt", "crt1");
  write(root_ / "b/tls.key", "key1");
  const ClientBundle from{root_ / "b/ca.crt", root_ / "b/tls.crt", root_ / "b/tls.key"};
  ASSERT_TRUE(registry_->import_bundle("lab", from).ok());
  const auto bundle = registry_->bundle("lab");
  EXPECT_EQ(read(bundle.key), "key1");
  EXPECT_EQ(mode(bundle.key), 0600U);
  write(root_ / "b/ca.crt", "ca2");
  write(root_ / "b/tls.key", "");  // an empty file anywhere changes nothing
  EXPECT_FALSE(registry_->import_bundle("lab", from).ok());
  EXPECT_EQ(read(bundle.ca), "ca1");
  EXPECT_EQ(read(bundle.key), "key1");
}

TEST_F(RegistryTest, LastSandboxBelongsToItsWorkspace) {
  registry_->remember_sandbox("lab", "default", "one");
  EXPECT_EQ(registry_->last_sandbox("lab", "default"), "one");
  EXPECT_FALSE(registry_->last_sandbox("lab", "other"));
  registry_->forget_sandbox("lab", "default", "two");
  EXPECT_EQ(registry_->last_sandbox("lab", "default"), "one");
  registry_->forget_sandbox("lab", "default", "one");
  EXPECT_FALSE(registry_->last_sandbox("lab", "default"));
}

}  // namespace
}  // namespace openshell::cli
