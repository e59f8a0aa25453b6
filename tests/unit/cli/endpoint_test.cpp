#include "cli/endpoint.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "cli/key_value.hpp"
#include "cli/write_all.hpp"

namespace openshell::cli {
namespace {

TEST(Endpoint, IsSplitAsItIsWritten) {
  struct Row {
    const char* url;
    const char *scheme, *host, *port;
    bool names_port;
    const char *path, *authority;
  };
  for (const Row& row : {
           Row{"https://a.test:8443/x/y", "https", "a.test", "8443", true, "/x/y", "a.test:8443"},
           Row{"https://a.test", "https", "a.test", "443", false, "", "a.test:443"},
           Row{"http://a.test/", "http", "a.test", "80", false, "/", "a.test:80"},
           Row{"http://[::1]:9090", "http", "::1", "9090", true, "", "[::1]:9090"},
           Row{"https://[2001:db8::7]/p:1", "https", "2001:db8::7", "443", false, "/p:1", "[2001:db8::7]:443"},
           Row{"127.0.0.1:5", "", "127.0.0.1", "5", true, "", "127.0.0.1:5"},
           Row{"", "", "", "80", false, "", ":80"},
       }) {
    const auto got = split_endpoint(row.url);
    EXPECT_EQ(got.scheme, row.scheme) << row.url;
    EXPECT_EQ(got.host, row.host) << row.url;
    EXPECT_EQ(got.port, row.port) << row.url;
    EXPECT_EQ(got.names_port, row.names_port) << row.url;
    EXPECT_EQ(got.path, row.path) << row.url;
    EXPECT_EQ(got.authority(), row.authority) << row.url;
  }
  EXPECT_EQ(split_endpoint("https://a.test/x").origin(), split_endpoint("https://a.test:443").origin());
  EXPECT_NE(split_endpoint("https://a.test:444").origin(), split_endpoint("https://a.test:443").origin());
}

TEST(Endpoint, LoopbackIsWhatTheKernelKeepsInside) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"", "128.0.0.1", "localhost.test", "::2", "10.0.0.1"}) EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(KeyValue, IsCutAtTheFirstEqualsSign) {
  EXPECT_EQ(key_value("A=b=c"), (std::pair<std::string, std::string>{"A", "b=c"}));
  EXPECT_EQ(key_value("A="), (std::pair<std::string, std::string>{"A", ""}));
  for (const char* word : {"", "A", "=b", "="}) EXPECT_FALSE(key_value(word)) << word;
}

TEST(WriteAll, WaitsForAReaderAlsoWhereTheFileIsNonBlocking) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const std::string sent(1 << 20, 'x');
  std::string got;
  std::thread reader{[&] {
    ::fcntl(ends[0], F_SETFL, 0);
    std::string buffer(4'096, '\0');
    for (ssize_t count = 0; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
      got.append(buffer, 0, static_cast<std::size_t>(count));
  }};
  EXPECT_TRUE(write_all(ends[1], sent).ok());
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  EXPECT_EQ(got, sent);
}

TEST(WriteAll, SaysThatTheReaderIsGone) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ::close(ends[0]);
  const auto before = ::signal(SIGPIPE, SIG_IGN);  // as the program has it
  EXPECT_THAT(std::string{write_all(ends[1], "x").message()}, ::testing::HasSubstr("cannot write"));
  ::signal(SIGPIPE, before);
  ::close(ends[1]);
}

}  // namespace
}  // namespace openshell::cli
