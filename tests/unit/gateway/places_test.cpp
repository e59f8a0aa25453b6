#include "programs/gateway/places.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/gateway/temporary_directory.hpp"

namespace openshell::gateway {
namespace {

constexpr unsigned kRoot = 0;
constexpr unsigned kAnna = 4'000'001;  // no such session directory

TEST(Places, OfRootAndOfUsers) {
  const Environment environment{{{"HOME", "/home/anna"}, {"XDG_STATE_HOME", "/xdg/state"}}};
  const auto root = *Places::find(environment, kRoot);
  EXPECT_EQ(root.state, "/var/lib/openshell");
  EXPECT_EQ(root.run, "/run/openshell");
  EXPECT_EQ(root.tls, "/var/lib/openshell/tls");
  const auto anna = *Places::find(environment, kAnna);
  EXPECT_EQ(anna.state, "/xdg/state/openshell");
  EXPECT_EQ(anna.run, "/tmp/openshell-4000001");
  EXPECT_EQ(anna.config_file, "/home/anna/.config/openshell/gateway.toml");
  EXPECT_EQ(Places::find(Environment{{{"HOME", "/h"}}}, kAnna)->state, "/h/.local/state/openshell");
  EXPECT_EQ(Places::find(Environment{{{"HOME", "/h"}, {"XDG_RUNTIME_DIR", "/r"}}}, kAnna)->run, "/r/openshell");
}

TEST(Places, OverridesHoldForBothAndAreAbsolute) {
  const Environment environment{{{"OPENSHELL_STATE_DIR", "/s/"}, {"OPENSHELL_RUN_DIR", "/r"}, {"OPENSHELL_LOCAL_TLS_DIR", "/t"}}};
  for (const unsigned uid : {kRoot, kAnna}) {
    const auto places = *Places::find(environment, uid);
    EXPECT_EQ(places.state, "/s");
    EXPECT_EQ(places.run, "/r");
    EXPECT_EQ(places.tls, "/t");
  }
  EXPECT_FALSE(Places::find(Environment{{{"OPENSHELL_STATE_DIR", "s"}}}, kRoot).ok());
  EXPECT_EQ(Places::find(Environment{{}}, kAnna).status().message(), "HOME is not set");
  EXPECT_EQ(Places::find(Environment{{}}, kRoot)->config_file, "");
}

TEST(Places, AreMadeWithTheModesOfTheirParties) {
  const TemporaryDirectory directory;
  Places places;
  places.state = directory.file("deep/state");
  places.run = directory.file("run");
  ASSERT_TRUE(places.make(::geteuid()).ok());
  const auto mode = [](const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777;
  };
  EXPECT_EQ(mode(places.state), ::geteuid() == 0 ? 0711U : 0700U);
  EXPECT_EQ(mode(places.state + "/gateway"), 0700U);
  EXPECT_EQ(mode(places.run + "/gateway"), 0700U);
  ASSERT_TRUE(places.make(::geteuid()).ok()) << "again is fine";
  std::filesystem::remove_all(places.run);
  std::filesystem::create_symlink("/tmp", places.run);
  EXPECT_FALSE(places.make(::geteuid()).ok()) << "a symbolic link is refused";
  EXPECT_FALSE(places.make(::geteuid() + 1).ok()) << "somebody else's directory is refused";
}

}  // namespace
}  // namespace openshell::gateway
