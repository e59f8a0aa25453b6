// Faults that people met in systems of this kind, each with its whole kind (named as the cases are), and what a hostile tester found.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include <absl/strings/str_replace.h>
#include <fmt/format.h>

#include "tests/integration/egress/support.hpp"

namespace openshell::egress::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace std::chrono_literals;

/// Takes connections one after the other and plays `script` on each.
class Scripted {
 public:
  explicit Scripted(std::function<void(Wire&)> script, std::uint32_t address = INADDR_LOOPBACK) : script_{std::move(script)} {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    listen(listener_, 128);
    socklen_t size = sizeof at;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread{[this] {
      while (true) {
        const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) return;
        Wire wire{fd};
        script_(wire);
      }
    }};
  }
  ~Scripted() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  std::function<void(Wire&)> script_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

std::string rest_policy(const std::string& host, std::uint16_t port, const std::string& path = "/public/**", const std::string& more = {}) {
  return fmt::format(
      "  api:\n    endpoints:\n      - host: \"{}\"\n        port: {}\n        protocol: rest\n        enforcement: enforce\n{}"
      "        rules:\n          - allow: {{method: GET, path: \"{}\"}}\n          - allow: {{method: POST, path: \"{}\"}}\n"
      "    binaries: [/usr/bin/curl]\n",
      host, port, more, path, path);
}

Message ask(Wire& wire, const std::string& bytes) {
  EXPECT_TRUE(wire.write(bytes));
  return read_message(wire);
}

std::vector<ActivityEvent> denied_events(World& world) {
  std::vector<ActivityEvent> out;
  for (auto& event : world.events().activities()) {
    if (event.disposition == Disposition::kDenied) out.push_back(event);
  }
  return out;
}

ProviderEnvironment token(const std::string& value = "real-token-value-0123456789") {
  ProviderEnvironment environment;
  environment.revision = 41;
  environment.values.emplace("API_TOKEN", Secret{value});
  return environment;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all{"/proc/self/fd"};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(20ms);
  }
  return false;
}

// ---- B10: what is judged is what is sent

TEST(Cases, B10_DotSegmentsAreJudgedAndSentInOneForm) {
  Server server;
  World world;
  world.publish(rest_policy(kHost, server.port()));
  struct Row {
    const char* target;
    int status;
    const char* sent;  // as upstream reads it; empty: it reads nothing
  };
  const std::vector<Row> table = {
      {"/public/../secret", 403, ""},
      {"/public/%2e%2e/secret", 403, ""},
      {"/public/.%2E/secret", 403, ""},
      {"/public//../secret", 403, ""},
      {"/public/..;x=1/secret", 403, ""},
      {"/public/a/../../secret", 403, ""},
      {"/public/../../secret", 400, ""},
      {"/../public/x", 400, ""},
      {"/public/..%2fsecret", 400, ""},
      {"/public/..%5csecret", 400, ""},
      {"/public/%252e%252e/secret", 200, "GET /public/%252e%252e/secret HTTP/1.1"},  // decoded once: a name, sent as that name
      {"/public/a/../b", 200, "GET /public/b HTTP/1.1"},
      {"/public/./c//d", 200, "GET /public/c/d HTTP/1.1"},
      {"/x/../public/e", 200, "GET /public/e HTTP/1.1"},
  };
  for (const auto& row : table) {
    for (const bool absolute : {false, true}) {
      const auto before = server.requests();
      auto opened = world.open(kHost, server.port());
      ASSERT_TRUE(opened.wire);
      const auto target = (absolute ? fmt::format("http://{}:{}", kHost, server.port()) : "") + row.target;
      EXPECT_EQ(ask(*opened.wire, get(target, server.port())).status, row.status) << target;
      EXPECT_EQ(server.requests() - before, row.status == 200 ? 1 : 0) << target;
      if (row.status == 200) {
        EXPECT_THAT(server.seen(), HasSubstr(row.sent)) << target;
      }
    }
  }
  EXPECT_THAT(server.seen(), Not(HasSubstr("/secret HTTP/1.1\r\nHost: host.openshell.internal\r\n")));
  EXPECT_THAT(server.seen(), Not(HasSubstr("GET /secret")));
}

// ---- B12: a stream has no total limit, and a cut is seen

// The pause is longer than a connection may be idle, and the stream as a whole is longer than its body may be silent.
TEST(Cases, B12_PausesDoNotEndAStreamAndItsBytesAreUnchanged) {
  constexpr auto kPause = 1'500ms, kPiece = 100ms, kSilence = 3'000ms;
  const std::string call = "data: {\"arguments\":\"" + std::string(2 << 20, 'x') + "\"}\n\n";
  std::string sent;
  Scripted model{[&](Wire& wire) {
    read_message(wire, true);
    wire.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 20; ++i) {
      const auto event = i == 19 ? call : fmt::format("data: {}\n\n", i);
      const auto chunk = fmt::format("{:x}\r\n{}\r\n", event.size(), event);
      sent += chunk;
      wire.write(chunk);
      std::this_thread::sleep_for(i == 9 ? kPause : kPiece);
    }
    sent += "0\r\n\r\n";
    wire.write("0\r\n\r\n");
    read_message(wire, true);
  }};
  World world{[&](EngineOptions& options) {
    options.waits.idle_connection = options.waits.request_head = 1'000ms;
    options.waits.body = kSilence;
  }};
  world.publish(rest_policy(kHost, model.port()));
  auto opened = world.open(kHost, model.port());
  const auto begun = std::chrono::steady_clock::now();
  const auto answer = ask(*opened.wire, get("/public/chat", model.port()));
  EXPECT_GT(std::chrono::steady_clock::now() - begun, kSilence);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, sent);
}

TEST(Cases, B12_AnyCutIsVisibleToTheClient) {
  struct Row {
    const char* name;
    const char* head;
    const char* body;
  };
  for (const Row& row :
       {Row{"inside a chunk", "Transfer-Encoding: chunked\r\n", "a\r\ndata"},
        Row{"between chunks", "Transfer-Encoding: chunked\r\n", "4\r\ndata\r\n"}, Row{"inside a length", "Content-Length: 100\r\n", "data"},
        Row{"up to the end", "Content-Type: text/event-stream\r\nConnection: close\r\n", "data: x\n\n"}}) {
    std::promise<void> arrived;
    const auto until_then = arrived.get_future().share();
    Scripted model{[&](Wire& wire) {
      read_message(wire, true);
      wire.write(fmt::format("HTTP/1.1 200 OK\r\n{}\r\n{}", row.head, row.body));
      until_then.wait_for(10s);  // a reset overtakes what was not read yet
      wire.reset();              // closes with RST
    }};
    World world;
    world.publish(rest_policy(kHost, model.port()));
    OpenIntent intent;
    intent.address = *IpAddress::parse(world.resolve(kHost));
    intent.port = Port{model.port()};
    intent.identity = ResolvedIdentity{{kCurl, digest_of(kCurl)}, {}, {}};
    auto opened = world.open_intent(std::move(intent), true);
    ASSERT_TRUE(opened.wire);
    opened.wire->write(get("/public/chat", model.port()));
    std::string all;
    while (!all.ends_with(row.body)) {
      const auto more = opened.wire->read();
      if (more.empty()) break;
      all += more;
    }
    EXPECT_THAT(all, testing::EndsWith(row.body)) << row.name;
    arrived.set_value();
    for (auto more = opened.wire->read(); !more.empty(); more = opened.wire->read()) all += more;
    EXPECT_TRUE(opened.wire->broken()) << row.name << ": ended as if complete";
    EXPECT_THAT(all, Not(HasSubstr("\r\n0\r\n"))) << row.name;
  }
}

// ---- B13: every refused request is one event

TEST(Cases, B13_ADeniedRequestIsExactlyOneDeniedEvent) {
  Server server;
  World world;
  world.publish(rest_policy(kHost, server.port(), "/repos/**"));
  const auto absolute = fmt::format("http://{}:{}/users/me?token=s3cret", kHost, server.port());
  for (const auto& target : {std::string{"/users/me?token=s3cret"}, absolute}) {
    const auto before = denied_events(world).size();
    const auto requests = world.engine().counters().requests_denied;
    auto opened = world.open(kHost, server.port());
    const auto answer = ask(*opened.wire, get(target, server.port()));
    EXPECT_EQ(answer.status, 403);
    const auto events = denied_events(world);
    ASSERT_EQ(events.size(), before + 1) << target;
    EXPECT_EQ(world.engine().counters().requests_denied, requests + 1);
    const auto& event = events.back();
    EXPECT_EQ(event.event_class, EventClass::kHttp);
    EXPECT_EQ(event.method, "GET");
    EXPECT_EQ(event.host, kHost);
    EXPECT_EQ(event.path, "/users/me");
    EXPECT_EQ(event.policy, "api");
    EXPECT_FALSE(event.message.empty());
    EXPECT_THAT(answer.body, HasSubstr(event.denial_id.str()));
  }
  EXPECT_THAT(world.events().all_text(), Not(HasSubstr("s3cret")));
}

TEST(Cases, B13_EveryProtocolThatIsRefusedSaysSo) {
  for (const char* protocol : {"websocket", "graphql", "mcp"}) {
    Server server;
    World world;
    world.publish(fmt::format(
        "  api:\n    endpoints:\n      - host: {}\n        port: {}\n        protocol: {}\n        enforcement: enforce\n"
        "        {}\n    binaries: [/usr/bin/curl]\n",
        kHost, server.port(), protocol, std::string_view{protocol} == "mcp" ? "mcp: {allow_all_known_mcp_methods: true}" : "access: full"));
    auto opened = world.open(kHost, server.port());
    ASSERT_TRUE(opened.wire) << protocol;
    EXPECT_EQ(ask(*opened.wire, get("/x", server.port())).status, 403) << protocol;
    const auto events = denied_events(world);
    ASSERT_EQ(events.size(), 1U) << protocol;
    EXPECT_EQ(events.front().event_class, EventClass::kHttp) << protocol;
    EXPECT_FALSE(events.front().denial_id.empty()) << protocol;
    EXPECT_EQ(server.requests(), 0) << protocol;
  }
}

// ---- B18: text that mentions the syntax is text

TEST(Cases, B18_BodiesPassUnchangedWhateverTheyMention) {
  Server server;
  World world;
  const auto own = world.install(token(), "API_TOKEN");
  world.publish(rest_policy(kHost, server.port()));
  const std::string encoded = absl::StrReplaceAll(own, {{":", "%3A"}});
  const std::vector<std::string> bodies = {"an unknown openshell:resolve:env:NO_SUCH_KEY",
                                           "another's openshell:resolve:env:v9_OTHER_TOKEN",
                                           "its own " + own,
                                           "encoded " + encoded,
                                           "revoked openshell:resolve:env:v1_API_TOKEN",
                                           "malformed openshell:resolve:env: and sk-OPENSHELL-RESOLVE-ENV-"};
  for (const auto& body : bodies) {
    auto opened = world.open(kHost, server.port());
    ASSERT_TRUE(opened.wire);
    const auto head =
        get("/public/chat", server.port(), fmt::format("Authorization: Bearer {}\r\nContent-Length: {}\r\n", own, body.size()), "POST");
    opened.wire->write(head + body.substr(0, body.size() / 2));
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(ask(*opened.wire, body.substr(body.size() / 2)).status, 200) << body;
    EXPECT_THAT(server.seen(), testing::EndsWith("\r\n\r\n" + body));
    // The same again, in chunks on the same connection.
    const auto chunk = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body);
    EXPECT_EQ(ask(*opened.wire, get("/public/chat", server.port(), "Transfer-Encoding: chunked\r\n", "POST") + chunk).status, 200) << body;
    EXPECT_THAT(server.seen(), testing::EndsWith("\r\n\r\n" + chunk));
  }
  EXPECT_THAT(server.seen(), HasSubstr("Authorization: Bearer real-token-value-0123456789"));
}

TEST(Cases, B18_WithoutAResolverABodyPassesAndAHeadIsAnsweredNeverReset) {
  Server server;
  World world;
  world.publish(rest_policy(kHost, server.port()));
  const std::string body = "openshell:resolve:env:v41_API_TOKEN";
  auto opened = world.open(kHost, server.port());
  EXPECT_EQ(ask(*opened.wire, get("/public/a", server.port(), fmt::format("Content-Length: {}\r\n", body.size()), "POST") + body).status,
            200);
  EXPECT_EQ(ask(*opened.wire, get("/public/a", server.port(), "Authorization: " + body + "\r\n")).status, 500);
  EXPECT_EQ(opened.wire->read(), "");
  EXPECT_FALSE(opened.wire->broken());
}

// ---- B08: descriptors run out, and come back

/// No descriptor is left while this lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{static_cast<rlim_t>(open_descriptors() + 32), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = dup(0); fd >= 0; fd = dup(0)) ballast_.push_back(fd);
  }
  ~NoDescriptors() {
    for (const int fd : ballast_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<int> ballast_;
};

TEST(Cases, B08_ADialWaitsForDescriptorsAndServiceReturnsWithThem) {
  Server server;
  World world;
  world.publish(rest_policy(kHost, server.port()));
  OpenIntent intent;
  intent.address = *IpAddress::parse(world.resolve(kHost));
  intent.port = Port{server.port()};
  intent.identity = ResolvedIdentity{{kCurl, digest_of(kCurl)}, {}, {}};
  std::optional<NoDescriptors> none;
  auto late = world.open_intent(std::move(intent), false, [&] { none.emplace(); });
  ASSERT_TRUE(late.wire);
  ASSERT_TRUE(late.wire->write(get("/public/late", server.port())));
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(server.requests(), 0);
  none.reset();
  EXPECT_EQ(read_message(*late.wire).status, 200);
  EXPECT_EQ(ask(*world.open(kHost, server.port()).wire, get("/public/after", server.port())).status, 200);
}

TEST(Cases, B08_TunnelsWhoseClientIsGoneAreReclaimed) {
  constexpr int kTunnels = 200;
  Server server;
  World world;
  world.publish(
      fmt::format("  raw:\n    endpoints:\n      - host: {}\n        port: {}\n        protocol: tcp\n    binaries: [/usr/bin/curl]\n",
                  kHost, server.port()));
  for (int round = 0; round < 3; ++round) {
    std::vector<World::Opened> tunnels;
    for (int i = 0; i < kTunnels; ++i) tunnels.push_back(world.open(kHost, server.port()));
    ASSERT_TRUE(eventually([&] { return world.engine().counters().live_relays == kTunnels; }));
    tunnels.clear();
    EXPECT_TRUE(eventually([&] { return world.engine().counters().live_relays == 0; })) << world.engine().counters().live_relays;
  }
}

// F9: the connection that is one too many is refused at once.
TEST(Cases, F9_TheOneThatIsTooManyIsRefusedAtOnce) {  // NET-27
  Server server;
  World world{[](EngineOptions& options) { options.max_streams = 8; }};
  world.publish(rest_policy(kHost, server.port()));
  std::vector<World::Opened> held;
  for (int i = 0; i < 8; ++i) held.push_back(world.open(kHost, server.port()));
  const auto start = std::chrono::steady_clock::now();
  const auto refused = world.open(kHost, server.port());
  EXPECT_FALSE(refused.wire);
  EXPECT_EQ(refused.denied.kind, DenialKind::kResourceExhausted);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s) << "a third of what an open may take";
  held.pop_back();
  EXPECT_TRUE(eventually([&] { return world.open(kHost, server.port()).wire != nullptr; }));
}

// FB-12: what was mediated over a channel that is lost ends with it, visibly.
TEST(Cases, FB_12_ALostChannelBreaksEveryRelay) {
  Server server;
  World world;
  world.publish(rest_policy(kHost, server.port()));
  OpenIntent intent;
  intent.address = *IpAddress::parse(world.resolve(kHost));
  intent.port = Port{server.port()};
  intent.identity = ResolvedIdentity{{kCurl, digest_of(kCurl)}, {}, {}};
  auto opened = world.open_intent(std::move(intent), true);
  EXPECT_EQ(ask(*opened.wire, get("/public/x", server.port())).status, 200);
  world.engine().reset_relays();
  EXPECT_EQ(opened.wire->read(), "");
  EXPECT_TRUE(opened.wire->broken());
  EXPECT_TRUE(eventually([&] { return world.engine().counters().live_relays == 0; }));
}

// ---- M3: keep-alive, or an honest close

TEST(Cases, M3_AConnectionIsKeptOrItsEndIsAnnounced) {
  Server server;
  World world;
  world.publish(rest_policy(kHost, server.port()));
  auto opened = world.open(kHost, server.port());
  for (int i = 0; i < 5; ++i) {
    const auto answer = ask(*opened.wire, get(fmt::format("/public/{}", i), server.port()));
    EXPECT_EQ(answer.status, 200);
    EXPECT_FALSE(answer.has("Connection: close"));
  }
  EXPECT_EQ(world.engine().counters().live_relays, 1U);
  // The client wants no more: the answer comes whole, then an end and no reset.
  EXPECT_EQ(ask(*opened.wire, get("/public/last", server.port(), "Connection: close\r\n")).status, 200);
  EXPECT_EQ(opened.wire->read(), "");
  EXPECT_FALSE(opened.wire->broken());
}

// ---- M8: cost

std::chrono::microseconds median_of_requests(int rules) {
  Server server;
  World world;
  std::string policy = rest_policy(kHost, server.port());
  for (int i = 1; i < rules; ++i) {
    policy += absl::StrReplaceAll(rest_policy(fmt::format("h{}.example.test", i), 443), {{"  api:", fmt::format("  r{}:", i)}});
  }
  world.publish(policy);
  auto opened = world.open(kHost, server.port());
  EXPECT_TRUE(opened.wire);
  std::vector<std::chrono::microseconds> times;
  for (int i = 0; i < 400; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(ask(*opened.wire, get("/public/x", server.port())).status, 200);
    times.push_back(std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 4];  // the machine has other work: the better part tells what it costs
}

TEST(Cases, M8_ARequestCostsTheSameWithAThousandRules) {
  const auto one = median_of_requests(1), thousand = median_of_requests(1000);
  std::printf("one rule %lld us, a thousand %lld us\n", static_cast<long long>(one.count()), static_cast<long long>(thousand.count()));
  EXPECT_LT(thousand, one * 2 + 200us);
}

// ---- M9: every wait has a bound

TEST(Cases, M9_SilenceHasABoundInEveryState) {
  const auto hurry = [](EngineOptions& options) { options.waits = {200ms, 200ms, 200ms, 200ms}; };
  struct Row {
    const char* name;
    std::string sent;
    std::string answered;
  };
  const std::vector<Row> table = {
      {"half a head", "GET /public/x HT", ""},
      {"no answer", "whole", ""},
      {"half an answer", "whole", "HTTP/1.1 200 OK\r\nContent-Le"},
      {"half a body", "whole", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"},
      {"half a stream", "whole", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: 1\n\n"},
      {"half an upload", "upload", ""},
  };
  for (const auto& row : table) {
    Scripted server{[&](Wire& wire) {
      read_message(wire, true);
      wire.write(row.answered);
      while (!wire.read().empty()) {
      }
    }};
    World world{hurry};
    world.publish(rest_policy(kHost, server.port()));
    auto opened = world.open(kHost, server.port());
    ASSERT_TRUE(opened.wire);
    auto bytes = row.sent;
    if (bytes == "whole") bytes = get("/public/x", server.port());
    if (bytes == "upload") bytes = get("/public/x", server.port(), "Content-Length: 10\r\n", "POST") + "half";
    opened.wire->write(bytes);
    EXPECT_TRUE(eventually([&] { return world.engine().counters().live_relays == 0; })) << row.name;
  }
}

TEST(Cases, M9_AnIdleConnectionIsEndedInOrder) {
  Server server;
  World world{[](EngineOptions& options) { options.waits.idle_connection = 200ms; }};
  world.publish(rest_policy(kHost, server.port()));
  auto opened = world.open(kHost, server.port());
  EXPECT_EQ(ask(*opened.wire, get("/public/x", server.port())).status, 200);
  EXPECT_EQ(opened.wire->read(), "");
  EXPECT_FALSE(opened.wire->broken());
  opened.wire.reset();
  EXPECT_TRUE(eventually([&] { return world.engine().counters().live_relays == 0; }));
}

// ---- what the hostile tester found

TEST(Cases, F13_MethodsAreCaseSensitive) {
  Server server;
  World world;
  world.publish(rest_policy(kHost, server.port()));
  for (const char* method : {"get", "Get", "gET"}) {
    EXPECT_EQ(ask(*world.open(kHost, server.port()).wire, get("/public/x", server.port(), {}, method)).status, 400) << method;
  }
  EXPECT_EQ(server.requests(), 0);
}

TEST(Cases, F20_UpstreamGetsTheAuthorisedNameAndNoOther) {
  Server server;
  World world;
  world.publish(rest_policy(kHost, server.port()));
  const auto one = [&](const std::string& bytes) { return ask(*world.open(kHost, server.port()).wire, bytes).status; };
  const auto authority = fmt::format("{}:{}", kHost, server.port());
  EXPECT_EQ(one(fmt::format("GET https://{}/public/x HTTP/1.1\r\nHost: {}\r\n\r\n", authority, authority)), 400);
  EXPECT_EQ(one(fmt::format("GET HTTPS://{}/public/x HTTP/1.1\r\nHost: {}\r\n\r\n", authority, authority)), 400);
  EXPECT_EQ(server.requests(), 0);
  EXPECT_EQ(one("GET /public/old HTTP/1.0\r\n\r\n"), 200);
  EXPECT_EQ(one(fmt::format("GET /public/x HTTP/1.1\r\nHost: HOST.OpenShell.internal:{}\r\n\r\n", server.port())), 200);
  EXPECT_EQ(one(fmt::format("GET /public/x HTTP/1.1\r\nHost: {}.:{}\r\n\r\n", kHost, server.port())), 200);
  const auto seen = server.seen();
  std::size_t hosts = 0;
  for (auto at = seen.find("Host: "); at != std::string::npos; at = seen.find("Host: ", at + 1)) {
    EXPECT_EQ(seen.substr(at + 6, authority.size() + 2), authority + "\r\n");
    ++hosts;
  }
  EXPECT_EQ(hosts, 3U);
}

// HTTP/1.0 without Host names nobody, so it gets no secret (spec of the request authority).
TEST(Cases, F20_ARequestThatNamesNoHostGetsNoSecret) {
  Server server;
  World world;
  const auto own = world.install(token(), "API_TOKEN");
  world.publish(rest_policy(kHost, server.port()));
  EXPECT_EQ(ask(*world.open(kHost, server.port()).wire, "GET /public/x HTTP/1.0\r\nAuthorization: Bearer " + own + "\r\n\r\n").status, 500);
  EXPECT_EQ(server.requests(), 0);
}

/// An address of this machine that is not loopback; 0: there is none.
std::uint32_t outer_address() {
  ifaddrs* all = nullptr;
  std::uint32_t out = 0;
  if (getifaddrs(&all) != 0) return 0;
  for (const auto* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const auto address = ntohl(reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr);
    if (address >> 24 != 127 && address >> 16 != 0xA9FE) out = address;
  }
  freeifaddrs(all);
  return out;
}

TEST(Cases, F18_ASecretLeavesTheHostInsideTlsOnly) {
  const auto address = outer_address();
  if (address == 0) GTEST_SKIP() << "this machine has no address but loopback";
  std::string seen;
  Scripted server{[&](Wire& wire) {
                    const auto request = read_message(wire, true);
                    if (request.head.empty()) return;
                    seen += request.head;
                    wire.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    wire.read();
                  },
                  address};
  const auto host = IpAddress::v4(address).str();
  World world;
  const auto own = world.install(token(), "API_TOKEN");
  const auto with = [&](const std::string& more) {
    world.publish(rest_policy(host, server.port(), "/public/**", more));
    auto opened = world.connect(host, server.port());
    EXPECT_TRUE(opened.wire) << host << wire_name(opened.denied.kind);
    if (!opened.wire) return Message{};
    return ask(*opened.wire,
               fmt::format("GET /public/x HTTP/1.1\r\nHost: {}:{}\r\nAuthorization: Bearer {}\r\n\r\n", host, server.port(), own));
  };
  const auto refused = with("");
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("credential_requires_tls"));
  EXPECT_EQ(seen, "");
  EXPECT_THAT(world.events().all_text(), HasSubstr("credential_requires_tls"));
  EXPECT_EQ(with("        allow_uninspected_credentials: true\n").status, 200);
  EXPECT_THAT(seen, HasSubstr("real-token-value"));
}

// F15: what a revision means. A generic key has one value, and every placeholder of it means that; a bound one must have been issued.
TEST(Cases, F15_ARevisionOfABoundKeyMustHaveBeenIssued) {
  Server server;
  World world;
  auto environment = token();
  environment.bindings["API_TOKEN"] = {{{kHost, server.port(), "/public/**"}}, "provider-1:API_TOKEN", ""};
  world.install(environment, "API_TOKEN");
  world.publish(rest_policy(kHost, server.port()));
  const auto with = [&](const char* placeholder) {
    return ask(*world.open(kHost, server.port()).wire,
               get("/public/x", server.port(), fmt::format("Authorization: Bearer {}\r\n", placeholder)))
        .status;
  };
  EXPECT_EQ(with("openshell:resolve:env:v41_API_TOKEN"), 200);
  EXPECT_EQ(with("openshell:resolve:env:v999_API_TOKEN"), 500);
  EXPECT_EQ(with("openshell:resolve:env:API_TOKEN"), 500);
}

// A fresh connection costs a signature of the upstream the first time only; one that is verified under another name is never resumed.
TEST(Cases, SessionsTowardsUpstreamAreResumed) {
  World world;
  Server server{&world.server_identity()};
  world.publish(rest_policy(kHost, server.port()));
  for (int i = 0; i < 4; ++i) {
    auto opened = world.open(kHost, server.port());
    ASSERT_TRUE(opened.wire);
    ASSERT_EQ(opened.wire->start_tls(world.sandbox_ca(), kHost), "");
    EXPECT_EQ(ask(*opened.wire, get("/public/x", server.port())).status, 200);
  }
  EXPECT_GE(server.resumed(), 2);
}

// A credential that is used elsewhere than where it is bound: one denied event and one finding, without secret and query.
TEST(Cases, CR_70_71_74_75_AMismatchIsAnEventAndAFinding) {  // CR-71, CR-74, CR-75
  Server server;
  World world;
  auto environment = token();
  environment.bindings["API_TOKEN"] = {{{kHost, server.port(), "/public/bound/**"}}, "provider-1:API_TOKEN", ""};
  const auto own = world.install(environment, "API_TOKEN");
  world.publish(rest_policy(kHost, server.port()));
  const auto answer = ask(*world.open(kHost, server.port()).wire,
                          get("/public/other?account=hidden", server.port(), "Authorization: Bearer " + own + "\r\n"));
  EXPECT_EQ(answer.status, 403);
  EXPECT_THAT(answer.body, HasSubstr("credential_endpoint_mismatch"));
  const auto events = denied_events(world);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].event_class, EventClass::kHttp);
  EXPECT_EQ(events[0].path, "/public/other");
  EXPECT_EQ(events[1].event_class, EventClass::kFinding);
  EXPECT_EQ(events[1].severity, Severity::kHigh);
  const auto all = world.events().all_text();
  EXPECT_THAT(all, Not(HasSubstr("real-token")));
  EXPECT_THAT(all, Not(HasSubstr("hidden")));
  EXPECT_THAT(all, Not(HasSubstr("API_TOKEN")));
  EXPECT_EQ(server.requests(), 0);
}

TEST(Cases, CR_33_34_PlacedCredentialsReachUpstreamAndNothingElseDoes) {
  Server server;
  World world;
  auto environment = token("k3y/with space");
  environment.bindings["API_TOKEN"] = {{{kHost, server.port(), ""}}, "provider-1:API_TOKEN", "", {"", "key", ""}};
  const auto own = world.install(environment, "API_TOKEN");
  world.publish(rest_policy(kHost, server.port()));
  const auto one = [&](const std::string& bytes) { return ask(*world.open(kHost, server.port()).wire, bytes); };
  EXPECT_EQ(one(get("/public/../public/x?a=1&key=" + own, server.port())).status, 200);
  EXPECT_THAT(server.seen(), HasSubstr("GET /public/x?a=1&key=k3y%2Fwith%20space HTTP/1.1"));
  const auto before = server.requests();
  EXPECT_EQ(one(get("/public/x?other=" + own, server.port())).status, 500);
  EXPECT_EQ(one(get("/public/x", server.port(), "X-Api-Key: " + own + "\r\n")).status, 500);
  EXPECT_EQ(server.requests(), before);
  EXPECT_THAT(world.events().all_text(), HasSubstr("credential_placement_not_declared"));
  EXPECT_THAT(world.events().all_text(), Not(HasSubstr("k3y")));
}

}  // namespace
}  // namespace openshell::egress::test
