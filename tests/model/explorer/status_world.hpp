// One supervisor, its real actor tree, a gateway that fails in every way, a disk that loses what was not synced, and users who change
// things: one schedule of it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/supervisor/root.hpp"
#include "tests/model/explorer/expectations.hpp"
#include "tests/model/explorer/gateway_model.hpp"
#include "tests/model/explorer/memory_disk.hpp"
#include "tests/model/explorer/stage.hpp"

namespace openshell::model {

class StatusWorld {
 public:
  StatusWorld(Stage& stage, Choices& choices);
  ~StatusWorld();
  StatusWorld(const StatusWorld&) = delete;
  StatusWorld& operator=(const StatusWorld&) = delete;

  /// Plays the schedule to its end: faults first, then everything heals and has to come to rest. The first invariant that breaks ends it.
  std::optional<Violation> run();
  [[nodiscard]] std::size_t steps() const { return steps_; }

 private:
  struct Host;
  struct Port;
  struct Transport;
  struct Relays;
  struct Logs;

  /// One life of openshell-supervisor.
  struct Process {
    int number = 0;
    bool alive = false;
    bool escalated = false;    // a child died that may not be missing: the process ends
    bool disk_faulty = false;  // at any time of its life
    bool opens_late = false;   // the journal could not be opened at its start
    std::string instance;
    std::shared_ptr<Host> host;
    std::shared_ptr<Port> port;
    std::shared_ptr<Transport> transport;
    std::shared_ptr<supervisor::JournalFiles> files;
    std::shared_ptr<supervisor::StatusJournal> journal;
    std::shared_ptr<supervisor::DenialQueue> denials;
    std::shared_ptr<supervisor::EndpointBox> box;
    supervisor::GatewayClient client;
    Stage::Duration began{0};
    Stage::Duration last_poll{0};
    std::uint64_t answered_revision = 0;  // of the newest configuration that the poller was given
    bool answer_applies = false;          // it is admitted, and for this instance
    bool environment_differs = false;     // the poller was given an environment of another configuration
    bool token_renewed = false;           // since the last status that needs it
    std::set<std::string> restarted;      // children that died at least once
  };

  /// A call on its way to the gateway and back.
  struct Call {
    std::uint64_t id = 0;
    int process = 0;
    std::string name;
    Stage::Duration since{0};
    caf::actor_id from = 0;
    std::optional<StatusIdentity> status;                     // of a policy status
    std::function<absl::Status(StatusWorld&)> arrive;         // the effect at the gateway, and its answer
    std::function<void(StatusWorld&, absl::Status)> deliver;  // the answer at the supervisor
    std::optional<absl::Status> answer;                       // it has arrived
  };

  struct Observation {
    int process = 0;
    std::uint64_t generation = 0;
    std::uint64_t publication = 0;
    std::string endpoint;
    std::string hash;
    std::uint64_t environment = 0;
  };

  // ---- one process
  void start_process();
  void crash_process(const std::string& why);
  supervisor::GatewayClient spawn_client(Process& process);
  void crash_actor();

  // ---- steps
  void step();
  bool run_actor();
  bool answer_call();
  bool act();
  bool pass_time();
  void heal();
  bool at_rest() const;
  [[nodiscard]] std::string stalled() const;

  // ---- what the world does
  void write_policy();
  void session_event();
  void deny();
  void observe();
  void disk_event();
  void restart_gateway();
  void end_session();

  // ---- calls
  void add_call(Process& process, Call call);
  void arrive(Call& call);
  void answer(std::size_t index, absl::Status status);
  absl::StatusCode any_code();

  // ---- invariants
  void fail(std::string invariant, std::string what);
  void fail(std::optional<Violation> violation) {
    if (violation) fail(std::move(violation->invariant), std::move(violation->what));
  }
  void check_at_rest_of_actors();
  void check_end();
  void check_report(const supervisor::EndpointReport& report);
  /// An observer that hears of its session begins with nothing: what was seen before that need not be reported.
  void first_report(caf::actor_id from, const supervisor::EndpointReport& report);
  /// A report is matched by its policy's content. Where a policy comes back, its results may be taken under the older revision, and the
  /// acknowledgement of the one between resets them: less is known then, nothing is attributed wrongly.
  void results_were(const std::map<std::string, int>& before);
  void check_counts(bool final);

  void message(const std::string& from, const std::string& to, const std::string& label);
  void note(const std::string& where, const std::string& text);

  Stage& stage_;
  Choices& choices_;
  GatewayModel gateway_;
  std::shared_ptr<DiskImage> disk_ = std::make_shared<DiskImage>();
  ExpectedStatuses expected_;
  ExpectedPace pace_;
  Process process_;
  std::vector<Call> calls_;
  std::vector<Call> slow_;  // given up by the supervisor, not yet at the gateway
  std::uint64_t next_call_ = 0;
  std::uint64_t sessions_ = 0, nudges_ = 0;
  std::map<std::string, std::uint64_t> nudged_;  // configuration revision when it was sent
  bool session_wanted_ = false;                  // the supervisor opened a stream that is not answered
  std::map<std::string, std::int64_t> denied_;
  bool denials_lost_ = false;
  std::set<std::pair<std::string, std::chrono::system_clock::time_point>> windows_taken_;  // the supervisor knows that the gateway has them
  std::vector<Observation> observations_;  // finished or not; the result of one is its place + 100
  std::vector<std::size_t> open_observations_;
  std::map<std::string, int> last_seen_;  // result that has to be at the gateway in the end
  std::string endpoint_digest_;           // of the newest report, to see that a repeated one is the same
  std::pair<std::string, std::uint64_t> endpoint_key_;
  std::pair<caf::actor_id, std::string> reporter_;  // and its session
  std::uint64_t settled_publication_ = 0;           // in force when the actors last had nothing to do
  Stage::Duration stalled_until_{0};
  bool disk_fails_ = false;
  bool crash_in_append_ = false;
  bool healing_ = false;
  Stage::Duration healed_{0};
  bool last_write_ = true;  // healing begins with a policy that works
  bool dying_ = false;
  std::uint32_t actions_ = 0;
  std::uint64_t contents_ = 1;
  std::size_t steps_ = 0;
  std::optional<Violation> violation_;
};

}  // namespace openshell::model
