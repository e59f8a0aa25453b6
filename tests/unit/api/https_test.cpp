// Requests to an identity provider whose name nobody answers for: the time that was given counts for the question too.
#include "api/oidc/https.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace openshell::oidc {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// A host of its own for the calling process, whose resolver takes every question and answers none. False: no such host can be had here.
bool become_host_with_a_silent_resolver() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0) return false;
  const int control = ::socket(AF_INET, SOCK_DGRAM, 0), resolver = ::socket(AF_INET, SOCK_DGRAM, 0);
  ifreq lo{};
  std::strcpy(lo.ifr_name, "lo");
  lo.ifr_flags = IFF_UP;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(53);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::ioctl(control, SIOCSIFFLAGS, &lo) != 0 || ::bind(resolver, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return false;
  char file[] = "/tmp/openshell-resolv-XXXXXX";
  if (::mkstemp(file) < 0) return false;
  std::ofstream{file} << "nameserver 127.0.0.1\noptions timeout:20 attempts:1\n";
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount(file, "/etc/resolv.conf", nullptr, MS_BIND, nullptr) == 0 && ::unlink(file) == 0;
}

enum Outcome { kBounded = 0, kNoHost = 10, kOtherWord = 11, kTooLate = 12 };

int ask_within(milliseconds limit, bool cancelled) {
  HttpsOptions options;
  options.timeout = limit;
  if (cancelled) options.cancelled = [] { return true; };
  const auto begin = steady_clock::now();
  const auto answer = https_get("https://id.silent.example/", options);
  const std::string_view wanted = cancelled ? "given up" : "no answer within";
  if (answer.ok() ||
      std::string_view{answer.status().message().data(), answer.status().message().size()}.find(wanted) == std::string_view::npos)
    return kOtherWord;
  return steady_clock::now() - begin < milliseconds{5'000} ? kBounded : kTooLate;  // the resolver would take 20 s
}

int in_a_child(int (*work)()) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Https, ANameThatNobodyAnswersForIsGivenUpInTime) {
  const int outcome =
      in_a_child([]() -> int { return become_host_with_a_silent_resolver() ? ask_within(milliseconds{300}, false) : kNoHost; });
  EXPECT_EQ(outcome, kBounded);
}

TEST(Https, ACancelledRequestDoesNotWaitForItsName) {
  const int outcome =
      in_a_child([]() -> int { return become_host_with_a_silent_resolver() ? ask_within(milliseconds{60'000}, true) : kNoHost; });
  EXPECT_EQ(outcome, kBounded);
}

}  // namespace
}  // namespace openshell::oidc
