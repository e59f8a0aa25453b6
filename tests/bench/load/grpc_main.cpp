// Calls of the gateway at full speed over one connection: `bench_grpc ENDPOINT CA CERTIFICATE KEY VERB COUNT OUTSTANDING [NAME]`, verbs
// `health`, `get` (GetSandbox NAME), `provider` (CreateProvider NAME-<n>) and `refused` (CreateSandbox of the NAME that is taken). One line
// of JSON as bench_client's.
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>

#include "openshell.grpc.pb.h"
#include "tests/bench/load/samples.hpp"

namespace {

using openshell::v1::OpenShell;
namespace bench = openshell::bench;

std::string content(const char* path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
}

// Keeps `outstanding` calls under way until `count` have ended. `Start` is given a context, a slot and what to call at the end.
class Load {
 public:
  Load(long count, long outstanding, grpc::StatusCode expected)
      : count_{count}, expected_{expected}, slots_(static_cast<std::size_t>(outstanding)) {}

  template <class Start>
  int run(Start start) {
    const auto begin = bench::Clock::now();
    for (std::size_t i = 0; i < slots_.size(); ++i) next(i, start);
    std::unique_lock lock{mutex_};
    done_.wait(lock, [this] { return running_ == 0; });
    if (!error_.empty()) {
      std::fprintf(stderr, "bench: %s\n", error_.c_str());
      return 1;
    }
    bench::report(values_, bench::Clock::now() - begin);
    return 0;
  }

 private:
  struct Slot {
    std::unique_ptr<grpc::ClientContext> context;
    bench::Clock::time_point began;
  };

  template <class Start>
  void next(std::size_t at, Start& start) {
    long number = 0;
    {
      const std::lock_guard lock{mutex_};
      if (started_ == count_ || !error_.empty()) return;
      number = started_++;
      ++running_;
    }
    Slot& slot = slots_[at];
    slot.context = std::make_unique<grpc::ClientContext>();
    slot.began = bench::Clock::now();
    start(slot.context.get(), at, number, [this, at, &start](const grpc::Status& status) {
      const double took = bench::microseconds(bench::Clock::now() - slots_[at].began);
      {
        const std::lock_guard lock{mutex_};
        values_.push_back(took);
        if (status.error_code() != expected_) error_ = "an answer that was not expected: " + status.error_message();
      }
      next(at, start);
      const std::lock_guard lock{mutex_};
      if (--running_ == 0) done_.notify_all();
    });
  }

  const long count_;
  const grpc::StatusCode expected_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<double> values_;
  long started_ = 0, running_ = 0;
  std::string error_;
};

template <class Request, class Response>
struct Messages {
  Request request;
  Response response;
};

void set_scope(openshell::datamodel::v1::WorkspaceSelector* scope) { scope->set_workspace("default"); }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) {
    std::fprintf(stderr, "usage: bench_grpc ENDPOINT CA CERTIFICATE KEY health|get|provider|refused COUNT OUTSTANDING [NAME]\n");
    return 2;
  }
  const auto channel = grpc::CreateChannel(argv[1], grpc::SslCredentials({content(argv[2]), content(argv[4]), content(argv[3])}));
  const auto stub = OpenShell::NewStub(channel);
  const std::string verb = argv[5], name = argc > 8 ? argv[8] : "";
  const long count = std::stol(argv[6]), outstanding = std::stol(argv[7]);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds{10})) {
    std::fprintf(stderr, "bench: no connection to %s\n", argv[1]);
    return 1;
  }
  const auto slots = static_cast<std::size_t>(outstanding);
  Load load{count, outstanding, verb == "refused" ? grpc::StatusCode::ALREADY_EXISTS : grpc::StatusCode::OK};
  if (verb == "health") {
    std::vector<Messages<openshell::v1::HealthRequest, openshell::v1::HealthResponse>> m(slots);
    return load.run([&](grpc::ClientContext* context, std::size_t at, long, auto done) {
      stub->async()->Health(context, &m[at].request, &m[at].response, done);
    });
  }
  if (verb == "get") {
    std::vector<Messages<openshell::v1::GetSandboxRequest, openshell::v1::SandboxResponse>> m(slots);
    for (auto& each : m) {
      set_scope(each.request.mutable_workspace_scope());
      each.request.set_name(name);
    }
    return load.run([&](grpc::ClientContext* context, std::size_t at, long, auto done) {
      stub->async()->GetSandbox(context, &m[at].request, &m[at].response, done);
    });
  }
  if (verb == "refused") {
    std::vector<Messages<openshell::v1::CreateSandboxRequest, openshell::v1::SandboxResponse>> m(slots);
    for (auto& each : m) {
      set_scope(each.request.mutable_workspace_scope());
      each.request.set_name(name);
      each.request.mutable_spec();
    }
    return load.run([&](grpc::ClientContext* context, std::size_t at, long, auto done) {
      stub->async()->CreateSandbox(context, &m[at].request, &m[at].response, done);
    });
  }
  if (verb == "provider") {
    std::vector<Messages<openshell::v1::CreateProviderRequest, openshell::v1::ProviderResponse>> m(slots);
    return load.run([&](grpc::ClientContext* context, std::size_t at, long number, auto done) {
      auto& request = m[at].request;
      set_scope(request.mutable_workspace_scope());
      request.mutable_provider()->mutable_metadata()->set_name(name + "-" + std::to_string(number));
      request.mutable_provider()->set_type("generic");
      (*request.mutable_provider()->mutable_credentials())["API_TOKEN"] = "value-of-a-token";
      stub->async()->CreateProvider(context, &request, &m[at].response, done);
    });
  }
  std::fprintf(stderr, "bench: no verb '%s'\n", verb.c_str());
  return 2;
}
