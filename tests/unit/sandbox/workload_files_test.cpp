#include "actors/sandbox/workload_files.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace openshell::sandbox {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  Files() {
    char pattern[] = "/tmp/workload-files-XXXXXX";
    root = ::mkdtemp(pattern);
  }
  ~Files() override { fs::remove_all(root); }
  std::string root;
  std::string put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream{root + path} << text;
    return root + path;
  }
  static std::string read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream{path}.rdbuf();
    return text.str();
  }
};

TEST_F(Files, ImagePolicyIsFoundOrMissingOrInvalid) {  // CA-89, CA-90, CA-92
  EXPECT_EQ(discover_image_policy(root), (boundary::ImagePolicy{std::nullopt, false}));
  put("/etc/navigator/policy.yaml", "old");
  EXPECT_EQ(discover_image_policy(root).yaml, "old");
  put("/etc/openshell/policy.yaml", "new");
  EXPECT_EQ(discover_image_policy(root).yaml, "new");
  put("/etc/openshell/policy.yaml", std::string(kMaxImagePolicyBytes, 'x'));
  EXPECT_FALSE(discover_image_policy(root).invalid);
  put("/etc/openshell/policy.yaml", std::string(kMaxImagePolicyBytes + 1, 'x'));
  EXPECT_TRUE(discover_image_policy(root).invalid);
  put("/etc/openshell/policy.yaml", "\xff");
  EXPECT_TRUE(discover_image_policy(root).invalid);
  fs::remove(root + "/etc/openshell/policy.yaml");
  fs::create_symlink("/etc/passwd", root + "/etc/openshell/policy.yaml");
  EXPECT_TRUE(discover_image_policy(root).invalid) << "a link is not followed";
}

TEST_F(Files, TrustIsWrittenWholeAndTheSystemBundleInPlace) {
  const auto bundle = put("/ca/system-bundle.crt", "SYSTEM");
  const auto inode = [&] {
    struct stat st {};
    ::stat(bundle.c_str(), &st);
    return st.st_ino;
  };
  const auto before = inode();
  ASSERT_TRUE(install_trust(root + "/ca", "CA", "ALL").ok());
  EXPECT_EQ(read(root + "/ca/material/ca.crt"), "CA");
  EXPECT_EQ(read(root + "/ca/material/ca-bundle.crt"), "ALL");
  EXPECT_EQ(read(bundle), "SYSTEM\nALL");
  EXPECT_EQ(inode(), before) << "it may be bound over the distribution's own file";
  fs::remove_all(root + "/ca/material");
  fs::create_symlink("/tmp", root + "/ca/material");
  EXPECT_FALSE(install_trust(root + "/ca", "CA", "ALL").ok()) << "a link is refused";
}

TEST_F(Files, ProviderFilesAreReplacedAsASet) {
  const std::string dir = root + "/providers";
  EXPECT_FALSE(install_provider_files(dir, {{"p/a", "1"}}).ok()) << "no directory";
  EXPECT_TRUE(install_provider_files(dir, {}).ok());
  fs::create_directory(dir);
  ASSERT_TRUE(install_provider_files(dir, {{"p/a", "1"}, {dir + "/p/b", "2"}}).ok());
  EXPECT_EQ(read(dir + "/p/b"), "2");
  ASSERT_TRUE(install_provider_files(dir, {{"p/b", "3"}}).ok());
  EXPECT_FALSE(fs::exists(dir + "/p/a"));
  EXPECT_EQ(read(dir + "/p/b"), "3");
  for (const char* bad : {"../x", "p/..", "p/a/b", "/etc/passwd", "p/ a", "p"})
    EXPECT_FALSE(install_provider_files(dir, {{bad, ""}}).ok()) << bad;
  EXPECT_TRUE(install_provider_files(dir, {{"p/big", std::string(kMaxProviderFileBytes, 'x')}}).ok());
  EXPECT_FALSE(install_provider_files(dir, {{"p/big", std::string(kMaxProviderFileBytes + 1, 'x')}}).ok());
  std::map<std::string, std::string> many;
  for (std::size_t i = 0; i < kMaxProviderFiles + 1; ++i) many["p/" + std::to_string(i)] = "";
  EXPECT_FALSE(install_provider_files(dir, many).ok());
}

}  // namespace
}  // namespace openshell::sandbox
