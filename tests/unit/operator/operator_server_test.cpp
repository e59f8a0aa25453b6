// Over real sockets: tables O1 to O7.
#include "api/operator/operator_server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/json/parse.hpp>
#include <filesystem>
#include <thread>

#include "observability/text.hpp"
#include "tests/unit/operator/fake_source.hpp"

namespace openshell::api {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using namespace std::chrono_literals;
using boost::system::error_code;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Response = http::response<http::string_body>;
using Headers = std::vector<std::pair<std::string, std::string>>;

class Operator : public testing::Test {
 protected:
  Operator() {
    char name[] = "/tmp/op-XXXXXX";
    folder_ = ::mkdtemp(name);
    source_->actors = {test::some_actor("gateway_root", "7 children")};
    server_ = start(cat(folder_, "/run/operator.sock"));
  }
  ~Operator() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<OperatorServer> start(const std::string& socket) {
    OperatorOptions options;
    options.socket = socket_ = socket;
    options.browser = OperatorAddress{"127.0.0.1", 0};
    options.metrics = OperatorAddress{"127.0.0.1", metrics_port()};
    options.gateway_id = "g1";
    options.metrics_text = [] { return std::string{"openshell_server_draining 0\n"}; };
    auto made = OperatorServer::bind(std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return nullptr;
    (*made)->open(source_);
    return *std::move(made);
  }
  std::uint16_t metrics_port() {
    if (metrics_port_ == 0) {
      asio::ip::tcp::acceptor probe{io_, {asio::ip::make_address("127.0.0.1"), 0}};
      metrics_port_ = probe.local_endpoint().port();
    }
    return metrics_port_;
  }

  template <class Socket>
  Response exchange(Socket& to, const std::string& method, const std::string& target, const Headers& headers) {
    http::request<http::string_body> request{http::verb::get, target, 11};
    request.method_string(method);
    for (const auto& [name, value] : headers) request.set(name, value);
    error_code error;
    http::write(to, request, error);
    EXPECT_FALSE(error) << error.message();
    boost::beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(16U << 20U);
    if (method == "HEAD") parser.skip(true);
    http::read(to, buffer, parser, error);
    EXPECT_FALSE(error) << error.message() << " for " << target;
    return parser.release();
  }
  asio::local::stream_protocol::socket local() {
    asio::local::stream_protocol::socket to{io_};
    to.connect(asio::local::stream_protocol::endpoint{socket_});
    return to;
  }
  asio::ip::tcp::socket port(std::uint16_t number) {
    asio::ip::tcp::socket to{io_};
    to.connect({asio::ip::make_address("127.0.0.1"), number});
    return to;
  }
  Response get(const std::string& target, const std::string& method = "GET") {
    auto to = local();
    return exchange(to, method, target, {{"Host", "operator"}});
  }
  Response browse(const std::string& target, const Headers& more = {}, const std::string& method = "GET") {
    auto to = port(server_->browser_port());
    Headers headers{{"Host", host()}};
    headers.insert(headers.end(), more.begin(), more.end());
    return exchange(to, method, target, headers);
  }
  std::string host() const { return cat("127.0.0.1:", server_->browser_port()); }
  std::string token() {
    const auto answer = get("/login-token", "POST");
    EXPECT_EQ(answer.result_int(), 200U);
    return std::string{boost::json::parse(answer.body()).as_object().at("token").as_string()};
  }
  std::string login() {
    const auto answer = browse(cat("/login?token=", token()));
    EXPECT_EQ(answer.result_int(), 303U);
    const std::string cookie{answer[http::field::set_cookie]};
    return cookie.substr(0, cookie.find(';'));
  }

  asio::io_context io_;
  std::shared_ptr<test::FakeSource> source_ = std::make_shared<test::FakeSource>();
  std::string folder_, socket_;
  std::uint16_t metrics_port_ = 0;
  std::unique_ptr<OperatorServer> server_;
};

TEST_F(Operator, ACT_40_O1_TheSocketIsForItsOwnUserAndRoot) {
  struct stat found {};
  ASSERT_EQ(::stat(socket_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600U);
  ASSERT_EQ(::stat(cat(folder_, "/run").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700U);
  EXPECT_EQ(get("/actors").result_int(), 200U);
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to come as another user";
  // Even where file modes would let it in.
  ::chmod(folder_.c_str(), 0755);
  ::chmod(cat(folder_, "/run").c_str(), 0755);
  ::chmod(socket_.c_str(), 0666);
  const auto child = ::fork();
  if (child == 0) {
    if (::setuid(65'534) != 0) ::_exit(9);
    asio::io_context io;
    asio::local::stream_protocol::socket to{io};
    error_code error;
    to.connect(asio::local::stream_protocol::endpoint{socket_}, error);
    if (error) ::_exit(8);
    asio::write(to, asio::buffer(std::string_view{"GET /actors HTTP/1.1\r\nHost: x\r\n\r\n"}), error);
    char byte = 0;
    const auto got = to.read_some(asio::buffer(&byte, 1), error);
    ::_exit(got == 0 ? 0 : 7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "another user is closed without a byte";
}

TEST_F(Operator, ACT_40_O2_ABrowserNeedsItsCookieAndTheRightHost) {
  const auto with_host = [&](const std::string& name) {
    auto to = port(server_->browser_port());
    return exchange(to, "GET", "/actors", name.empty() ? Headers{} : Headers{{"Host", name}}).result_int();
  };
  EXPECT_EQ(with_host(host()), 401U);
  EXPECT_EQ(with_host(cat("localhost:", server_->browser_port())), 401U);
  EXPECT_EQ(with_host(cat("evil.test:", server_->browser_port())), 403U);
  EXPECT_EQ(with_host(cat("127.0.0.1:", server_->browser_port() + 1)), 403U);
  EXPECT_EQ(with_host(""), 403U);
  EXPECT_THAT(browse("/actors").body(), HasSubstr("openshell-gateway operator-url"));
  EXPECT_EQ(browse("/actors", {{"Cookie", cat("openshell_operator_", server_->browser_port(), "=guess")}}).result_int(), 401U);
}

TEST_F(Operator, ACT_40_O3_ALoginLinkIsGoodOnce) {
  const auto one = token();
  const auto answer = browse(cat("/login?token=", one));
  EXPECT_EQ(answer.result_int(), 303U);
  EXPECT_EQ(answer[http::field::location], "/");
  const std::string cookie{answer[http::field::set_cookie]};
  EXPECT_THAT(cookie, HasSubstr("; HttpOnly; SameSite=Strict; Path=/"));
  EXPECT_EQ(browse(cat("/login?token=", one)).result_int(), 403U);
  const auto mine = cookie.substr(0, cookie.find(';'));
  EXPECT_EQ(browse("/actors", {{"Cookie", mine}}).result_int(), 200U);
  EXPECT_EQ(browse("/", {{"Cookie", mine}}).result_int(), 200U);
  const auto unused = token();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(browse("/login?token=wrong").result_int(), 403U);
  EXPECT_EQ(browse(cat("/login?token=", unused)).result_int(), 403U);
  server_.reset();
  server_ = start(cat(folder_, "/run/operator.sock"));
  EXPECT_EQ(browse("/actors", {{"Cookie", mine}}).result_int(), 401U) << "a restart ends all";
}

TEST_F(Operator, ACT_40_O5_OnlyWhatItIsFor) {
  EXPECT_EQ(get("/healthz").result_int(), 404U);
  EXPECT_EQ(get("/readyz").result_int(), 404U);
  EXPECT_EQ(get("/login?token=x").result_int(), 404U);
  EXPECT_EQ(get("/static/../etc/passwd").result_int(), 404U);
  EXPECT_EQ(get("/actors", "POST").result_int(), 405U);
  EXPECT_EQ(get("/actors", "DELETE").result_int(), 405U);
  const auto mine = login();
  EXPECT_EQ(browse("/login-token", {{"Cookie", mine}}, "POST").result_int(), 405U) << "a page makes no logins";
  EXPECT_EQ(browse("/actors", {{"Cookie", mine}, {"Sec-Fetch-Site", "cross-site"}}).result_int(), 403U);
  EXPECT_EQ(browse("/actors", {{"Cookie", mine}, {"Sec-Fetch-Site", "same-origin"}}).result_int(), 200U);
  const auto head = get("/actors", "HEAD");
  EXPECT_EQ(head.result_int(), 200U);
  auto to = local();  // HTTP/2, as gRPC speaks it
  asio::write(to, asio::buffer(std::string_view{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}));
  std::string rest;
  error_code error;
  asio::read(to, asio::dynamic_buffer(rest), error);
  EXPECT_THAT(rest, Not(HasSubstr("200")));
}

TEST_F(Operator, ACT_40_EveryAnswerForbidsWhatAPageDoesNotNeed) {
  const auto mine = login();
  for (const char* path : {"/", "/static/map.js", "/actors", "/nowhere"}) {
    const auto answer = browse(path, {{"Cookie", mine}});
    EXPECT_EQ(answer[http::field::cache_control], "no-store") << path;
    EXPECT_EQ(answer["Referrer-Policy"], "no-referrer");
    EXPECT_EQ(answer["X-Content-Type-Options"], "nosniff");
    EXPECT_EQ(answer["X-Frame-Options"], "DENY");
    EXPECT_THAT(std::string{answer["Content-Security-Policy"]}, StartsWith("default-src 'self'; frame-ancestors 'none'"));
    EXPECT_EQ(answer.count("Access-Control-Allow-Origin"), 0U);
  }
  const auto page = browse("/", {{"Cookie", mine}}).body();
  EXPECT_THAT(page, Not(HasSubstr("://")));
  EXPECT_THAT(page, Not(HasSubstr(" style=")));
  EXPECT_THAT(page, Not(HasSubstr(" onclick=")));
}

TEST_F(Operator, ACT_40_O6_MetricsOnTheSocketAndOnTheirPort) {
  const auto body = get("/metrics").body();
  EXPECT_THAT(body, HasSubstr("openshell_server_draining 0\n"));
  EXPECT_THAT(body, HasSubstr("openshell_actors{process=\"gateway\",kind=\"gateway_root\"} 1\n"));
  auto to = port(metrics_port_);
  EXPECT_EQ(exchange(to, "GET", "/metrics", {{"Host", "anybody"}}).body(), body);
  auto other = port(metrics_port_);
  EXPECT_EQ(exchange(other, "GET", "/actors", {{"Host", "anybody"}}).result_int(), 404U);
  EXPECT_EQ(source_->opens, 0) << "metrics open no relay";
}

class Stream {
 public:
  Stream(asio::local::stream_protocol::socket socket) : socket_{std::move(socket)} {
    asio::write(socket_, asio::buffer(std::string_view{"GET /actors/stream HTTP/1.1\r\nHost: x\r\n\r\n"}));
    head_ = next("\r\n\r\n");
  }
  std::string next(std::string_view end = "\n\n") {
    error_code error;
    const auto size = asio::read_until(socket_, asio::dynamic_buffer(held_), end, error);
    if (error) return cat("ended: ", error.message());
    auto out = held_.substr(0, size);
    held_.erase(0, size);
    return out;
  }
  std::string head_;
  asio::local::stream_protocol::socket socket_;

 private:
  std::string held_;
};

TEST_F(Operator, ACT_40_O4_TheStreamBeginsWithEverythingAndGoesOnWithChanges) {
  Stream stream{local()};
  EXPECT_THAT(stream.head_, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(stream.head_, HasSubstr("text/event-stream"));
  const auto first = stream.next();
  EXPECT_THAT(first, StartsWith("event: snapshot\nid: "));
  EXPECT_THAT(first, HasSubstr("gateway_root"));
  const auto begun = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock{source_->mutex};
    source_->actors = {test::some_actor("gateway_root", "8 children")};
    ++source_->seq;
  }
  const auto change = stream.next();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 2'500ms);
  EXPECT_THAT(change, StartsWith("event: change\nid: "));
  EXPECT_THAT(change, HasSubstr("8 children"));
  EXPECT_THAT(change, HasSubstr("\"gone\":[]"));
}

TEST_F(Operator, ACT_40_O4_TheSeventeenthStreamIsRefusedUntilOneEnds) {
  std::vector<std::unique_ptr<Stream>> all;
  for (std::size_t i = 0; i < kOperatorStreams; ++i) all.push_back(std::make_unique<Stream>(local()));
  for (auto& one : all) EXPECT_THAT(one->next(), StartsWith("event: snapshot"));
  EXPECT_EQ(get("/actors/stream").result_int(), 503U);
  all.pop_back();
  for (int tries = 0; tries < 100; ++tries) {  // its end is noticed, not waited for
    Stream again{local()};
    if (again.head_.starts_with("HTTP/1.1 200")) return;
    std::this_thread::sleep_for(20ms);
  }
  FAIL() << "the place of a stream that ended stays taken";
}

TEST_F(Operator, ACT_40_O4_AReaderThatTakesNothingIsClosed) {
  std::vector<ActorSnapshot> many;
  for (int i = 0; i < 4'000; ++i) many.push_back(test::some_actor(cat("actor", i), std::string(256, 'x')));
  {
    const std::lock_guard lock{source_->mutex};
    source_->actors = many;  // more than a socket's buffers hold
    ++source_->seq;
  }
  Stream stalled{local()};
  const auto begun = std::chrono::steady_clock::now();
  error_code error;
  // It reads nothing: the gateway's end goes after 10 s, and with it the rest of the event.
  pollfd end{stalled.socket_.native_handle(), POLLRDHUP, 0};
  ASSERT_EQ(::poll(&end, 1, 15'000), 1);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 9s);
}

TEST_F(Operator, ACT_40_ARequestIsBounded) {
  auto to = local();
  error_code error;
  asio::write(to, asio::buffer(cat("GET /actors HTTP/1.1\r\nHost: x\r\nX-Long: ", std::string(kOperatorHead, 'x'), "\r\n\r\n")), error);
  std::string rest;
  asio::read(to, asio::dynamic_buffer(rest), error);
  EXPECT_THAT(rest, Not(HasSubstr("200")));
  auto body = local();
  asio::write(body, asio::buffer(cat("POST /login-token HTTP/1.1\r\nHost: x\r\nContent-Length: ", kOperatorBody + 1, "\r\n\r\n")), error);
  rest.clear();
  asio::read(body, asio::dynamic_buffer(rest), error);
  EXPECT_THAT(rest, Not(HasSubstr("200")));
}

// C47: a socket that somebody answers on is not taken, one that is left over is; nothing but a socket is replaced.
TEST_F(Operator, ACT_40_C47_ALeftOverSocketIsReplacedAndALiveOneIsNot) {
  OperatorOptions options;
  options.socket = socket_;
  const auto second = OperatorServer::bind(options);
  EXPECT_EQ(second.status().message(), cat("operator socket ", socket_, " is in use by another process"));
  const auto dead = cat(folder_, "/run/dead.sock");
  { asio::local::stream_protocol::acceptor left{io_, asio::local::stream_protocol::endpoint{dead}}; }
  options.socket = dead;
  EXPECT_TRUE(OperatorServer::bind(options).ok());
  const auto file = cat(folder_, "/run/file");
  std::fclose(std::fopen(file.c_str(), "w"));
  options.socket = file;
  EXPECT_THAT(std::string{OperatorServer::bind(options).status().message()}, StartsWith(cat("failed to bind operator socket ", file)));
  EXPECT_TRUE(std::filesystem::exists(file));
  std::filesystem::create_directory_symlink(cat(folder_, "/run"), cat(folder_, "/link"));
  options.socket = cat(folder_, "/link/x.sock");
  EXPECT_THAT(std::string{OperatorServer::bind(options).status().message()}, HasSubstr("symbolic link"));
}

TEST_F(Operator, APortThatIsTakenIsNamed) {
  OperatorOptions options;
  options.browser = OperatorAddress{"127.0.0.1", server_->browser_port()};
  EXPECT_THAT(std::string{OperatorServer::bind(options).status().message()},
              StartsWith(cat("failed to bind operator port 127.0.0.1:", server_->browser_port())));
}

TEST_F(Operator, OneActorIsAskedOverHttp) {
  EXPECT_THAT(get("/actors/inspect?process=gateway%3Ag1&actor=gateway_root").body(), HasSubstr("asked itself"));
  EXPECT_THAT(get("/actors/inspect?process=nowhere&actor=x").body(), HasSubstr("error"));
  EXPECT_THAT(get("/actors/inspect").body(), HasSubstr("error"));
}

}  // namespace
}  // namespace openshell::api
