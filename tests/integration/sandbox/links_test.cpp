// B06: rules may name an interpreter by its symbolic link; the kernel names what runs.
#include <climits>
#include <cstdlib>

#include "tests/integration/sandbox/fixture.hpp"

namespace openshell::sandbox::test {
namespace {

std::string real(const std::string& path) {
  char whole[PATH_MAX];
  return ::realpath(path.c_str(), whole) != nullptr ? whole : "";
}

TEST_F(SandboxProcess, B06_LinksOfTheRootAreFollowedAndThoseOfTheWorkloadAreNot) {  // BIN-20
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_EQ(exec("ln -s /usr/bin/python3 /sandbox/direct; ln -s ../usr/bin/python3 /tmp/relative; mkdir /sandbox/venv; "
                 "ln -s /usr/bin/python3 /sandbox/venv/python; ln -s loop /sandbox/loop; printf x > /sandbox/plain; "
                 "mkdir /sandbox/shut; ln -s /usr/bin/python3 /sandbox/shut/python; chmod 555 /sandbox/shut")
                .status,
            (boundary::ExitStatus{false, 0}));
  const auto answer = client->ask(
      boundary::ResolveLinks{{"/usr/bin/python3", "/usr/bin/../bin/python3", "/bin/awk", "/usr/bin/awk", real("/usr/bin/python3"),
                              "/sandbox/direct", "/tmp/relative", "/sandbox/venv/python", "/sandbox/loop", "/sandbox/plain",
                              "/sandbox/shut/python", "/usr/bin/no-such-program", "/usr/bin"}});
  const auto* links = std::get_if<boundary::LinksResolved>(&answer);
  ASSERT_NE(links, nullptr);
  EXPECT_EQ(links->targets.at("/usr/bin/python3"), real("/usr/bin/python3"));
  EXPECT_EQ(links->targets.at("/usr/bin/../bin/python3"), real("/usr/bin/python3"));
  EXPECT_EQ(links->targets.at("/usr/bin/awk"), real("/usr/bin/awk"));  // a chain through /etc/alternatives
  EXPECT_EQ(links->targets.at("/bin/awk"), real("/usr/bin/awk"));      // and through a directory that is a link
  EXPECT_EQ(links->targets.size(), 4U);
  for (const char* path : {"/sandbox/direct", "/tmp/relative", "/sandbox/venv/python", "/sandbox/loop", "/sandbox/shut/python"})
    EXPECT_TRUE(links->refused.contains(path)) << path << " could be made to lead to anything";
  EXPECT_EQ(links->refused.size(), 5U);
}

}  // namespace
}  // namespace openshell::sandbox::test
