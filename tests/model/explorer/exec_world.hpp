// The real exec registry of a sandbox with a launcher that takes its time, callers that lose answers and ask again, and waits that are
// abandoned: one schedule of it.
#pragma once

#include <boost/asio/io_context.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/sandbox/exec_registry.hpp"
#include "messages/sandbox.hpp"
#include "tests/model/explorer/stage.hpp"

namespace openshell::model {

class ExecWorld {
 public:
  ExecWorld(Stage& stage, Choices& choices);
  ~ExecWorld();
  ExecWorld(const ExecWorld&) = delete;
  ExecWorld& operator=(const ExecWorld&) = delete;

  std::optional<Violation> run();

 private:
  enum class Kind { exec, wait, attach, signal, kill, survey };
  struct Request {
    Kind kind = Kind::exec;
    std::string subject;  // request id of an exec, process id of the others
    std::string digest;   // of an exec
    std::uint64_t expires = 0;
    bool exited_before = false;  // its process had ended when it was asked
    bool done = false;
    bool abandoned = false;  // nobody takes the answer
  };
  struct Process {
    std::shared_ptr<sandbox::ManagedProcess> process;
    std::shared_ptr<const sandbox::ProcessOrder> order;
    std::string request_id;
    std::optional<boundary::ExitStatus> status;
    bool told = false;                            // its caller was told that it runs
    std::shared_ptr<sandbox::CallStream> stream;  // of the attachment that is open
  };
  struct Launch {
    sandbox::LaunchOrder order;
    caf::typed_response_promise<sandbox::LaunchOutcome> promise;
  };
  class Call;

  void spawn();
  void step();
  bool act();
  bool pass_time();
  void ask(Kind kind, std::string subject, std::string digest = {}, std::uint64_t expires = 0);
  void send(std::size_t number, const boundary::Request& operation, const std::string& request_id);
  void answered(std::size_t number, const sandbox::Answer& answer);
  void exec_answered(const Request& request, const sandbox::Answer& answer);
  void survey_answered(const sandbox::ProcessSurvey& survey);
  void launch(bool succeeds);
  void exit_process();
  void release(Process& process);
  std::string some_process();
  [[nodiscard]] std::uint64_t unix_ms() const;
  void check_at_rest();
  void check_nothing_retained();
  void fail(std::string invariant, std::string what);
  void message(const std::string& from, const std::string& to, const std::string& label);

  Stage& stage_;
  Choices& choices_;
  boost::asio::io_context io_;
  sandbox::ExecRegistry registry_;
  sandbox::LauncherControl launcher_;
  caf::actor caller_;
  std::vector<Request> requests_;
  std::vector<Launch> launches_;                 // that the launcher is at
  std::map<std::string, Process> processes_;     // by process id
  std::map<std::string, std::string> accepted_;  // request id -> digest of the payload that counts
  std::map<std::string, int> launched_;          // request id -> times
  std::uint32_t actions_ = 0;
  bool over_ = false;
  std::optional<Violation> violation_;
};

}  // namespace openshell::model
