// At most once: what counts as the same request, what the store remembers of it, and what a call does with that.
#include "api/admissions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "admissions.pb.h"
#include "api/admitted_call.hpp"
#include "api/answer_record.hpp"
#include "api/errors.hpp"
#include "api/workspace_scope.hpp"
#include "openshell.pb.h"
#include "rpc_status.pb.h"

namespace openshell::api {
namespace {

using namespace openshell::v1;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kId = "6f1d2c3b-0000-4000-8000-00000000aaaa";
constexpr std::int64_t kDay = 24LL * 60 * 60 * 1000;

std::string reason(const absl::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(status_details(status));
  for (const auto& any : details.details()) {
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&info)) return info.reason();
  }
  return {};
}

CreateProviderRequest provider_request(const std::string& id = kId) {
  CreateProviderRequest request;
  request.mutable_workspace_scope()->set_workspace("default");
  request.mutable_provider()->set_type("generic");
  (*request.mutable_provider()->mutable_credentials())["TOKEN"] = "s3cret";
  request.set_request_id(id);
  return request;
}

// ---- identity

TEST(RequestIdentity, ExactlyTheMutationsAreCovered) {
  std::vector<std::string> names;
  std::vector<std::string> streams;
  for (const auto& [name, method] : covered_methods()) (method.unary ? names : streams).push_back(name);
  EXPECT_EQ(names.size(), 30U);
  EXPECT_THAT(streams, testing::ElementsAre("ExecSandbox", "ExecSandboxInteractive"));
  EXPECT_THAT(names, testing::IsSupersetOf({"CreateSandbox", "DeleteProvider", "UpdateConfig", "AddWorkspaceMember"}));
  EXPECT_THAT(names, Not(testing::Contains("GetSandbox")));
  EXPECT_THAT(names, Not(testing::Contains("CreateSshSession")));
  EXPECT_FALSE(covered_methods().find("CreateWorkspace")->second.secret);
  EXPECT_TRUE(covered_methods().find("CreateProvider")->second.secret);
}

TEST(RequestIdentity, TheFingerprintIsOfEverythingButTheId) {
  auto one = provider_request();
  auto other = provider_request("00000000-0000-4000-8000-000000000001");
  const std::string before = one.SerializeAsString();
  const std::string print = fingerprint(one, nullptr);
  EXPECT_EQ(one.SerializeAsString(), before);
  EXPECT_EQ(fingerprint(other, nullptr), print);
  (*other.mutable_provider()->mutable_credentials())["TOKEN"] = "other";
  EXPECT_NE(fingerprint(other, nullptr), print);
}

TEST(RequestIdentity, LabelsInAnotherOrderAreTheSameRequest) {
  CreateSandboxRequest one;
  CreateSandboxRequest other;
  for (int i = 0; i < 40; ++i) (*one.mutable_labels())["k" + std::to_string(i)] = "v";
  for (int i = 39; i >= 0; --i) (*other.mutable_labels())["k" + std::to_string(i)] = "v";
  EXPECT_EQ(fingerprint(one, nullptr), fingerprint(other, nullptr));
  one.mutable_spec();  // present, and empty
  EXPECT_NE(fingerprint(one, nullptr), fingerprint(other, nullptr));
}

TEST(RequestIdentity, TheKeyProtectsAndNamesItself) {
  const FingerprintKey key{Secret{"private key one"}};
  const FingerprintKey same{Secret{"private key one"}};
  const FingerprintKey other{Secret{"private key two"}};
  auto request = provider_request();
  EXPECT_EQ(fingerprint(request, &key), fingerprint(request, &same));
  EXPECT_NE(fingerprint(request, &key), fingerprint(request, &other));
  EXPECT_NE(fingerprint(request, &key), fingerprint(request, nullptr));
  EXPECT_EQ(key.id(), same.id());
  EXPECT_NE(key.id(), other.id());
}

TEST(RequestIdentity, TheAdmissionIsOfCallerMethodWorkspaceAndId) {
  const std::string key = admission_key("c", "CreateProvider", "w", kId);
  EXPECT_EQ(admission_key("c", "CreateProvider", "w", "6F1D2C3B-0000-4000-8000-00000000AAAA"), key);
  EXPECT_NE(admission_key("d", "CreateProvider", "w", kId), key);
  EXPECT_NE(admission_key("c", "DeleteProvider", "w", kId), key);
  EXPECT_NE(admission_key("c", "CreateProvider", "v", kId), key);
  EXPECT_NE(admission_key("c", "CreateProviderw", "", kId), admission_key("c", "CreateProvider", "w", kId));
  Identity anna{"anna", "", {}, {}, Identity::Source::kMtls};
  Identity local{"anna", "", {}, {}, Identity::Source::kLocalDev};
  EXPECT_NE(caller_hash(anna), caller_hash(local));
}

TEST(RequestIdentity, OfAnInteractiveExecOnlyTheStartCounts) {
  ExecSandboxInput input;
  input.mutable_resize()->set_cols(3);
  EXPECT_EQ(identified_part(input), nullptr);
  input.mutable_start()->set_request_id(kId);
  ASSERT_NE(identified_part(input), nullptr);
  EXPECT_EQ(request_id_of(*identified_part(input)), kId);
}

TEST(RequestIdentity, TheScopeIsThatOfTheRequest) {
  auto provider = provider_request();
  EXPECT_EQ(scope_of("CreateProvider", provider)->role_in, "default");
  provider.clear_workspace_scope();
  EXPECT_EQ(scope_of("CreateProvider", provider).status().code(), absl::StatusCode::kInvalidArgument);
  UpdateConfigRequest update;
  update.set_global(true);
  EXPECT_TRUE(scope_of("UpdateConfig", update)->platform_admin);
  CreateWorkspaceRequest workspace;
  workspace.set_name("new");
  EXPECT_EQ(scope_of("CreateWorkspace", workspace)->workspace, "new");
  EXPECT_EQ(scope_of("CreateWorkspace", workspace)->role_in, "");
  EXPECT_TRUE(scope_of("ImportProviderProfiles", ImportProviderProfilesRequest{})->platform_admin);
}

// ---- the record of an answer

TEST(AnswerRecord, KeepsIdsAndNoBody) {
  ProviderResponse response;
  response.mutable_provider()->mutable_metadata()->set_id("p-id");
  response.mutable_provider()->mutable_metadata()->set_name("github");
  response.mutable_provider()->mutable_metadata()->set_resource_version(7);
  (*response.mutable_provider()->mutable_config())["url"] = "private-body";
  response.set_mutation_id("m");
  Admissions::Record record;
  record_answer(response, record);
  EXPECT_THAT(record.SerializeAsString(), Not(HasSubstr("private-body")));
  ASSERT_EQ(record.objects_size(), 1);
  EXPECT_EQ(record.objects(0).id(), "p-id");
  EXPECT_EQ(record.objects(0).resource_version(), 7U);
  EXPECT_FALSE(record.unrepeatable());
  ProviderResponse kept;
  kept.ParseFromString(record.answer());
  EXPECT_EQ(kept.mutation_id(), "m");
}

TEST(AnswerRecord, WhatCanNotBeReadAgainIsNotRepeated) {
  AddWorkspaceMemberResponse response;
  response.mutable_member()->mutable_metadata()->set_name("m");
  Admissions::Record record;
  record_answer(response, record);
  EXPECT_TRUE(record.unrepeatable());
}

// ---- the store

class AdmissionsTest : public testing::Test {
 protected:
  AdmissionsTest() { make({}); }
  void make(AdmissionOptions options) {
    if (!store_) {
      store_ = *storage::open_store("sqlite::memory:");
      EXPECT_TRUE(ensure_default_workspace(*store_).ok());
    }
    options.store = store_.get();
    if (!options.key) options.key.emplace(Secret{"private key"});
    options.now_ms = [this] { return now_.load(); };
    admissions_ = std::make_shared<Admissions>(std::move(options));
  }
  static Context user(const std::string& subject = "anna", bool rbac = false) {
    auto ctx = std::make_shared<CallContext>();
    ctx->method = "CreateProvider";
    ctx->principal = User{{subject, "", {"openshell-user"}, {}, Identity::Source::kMtls}};
    ctx->rbac = rbac;
    ctx->admin_role = "openshell-admin";
    return ctx;
  }
  Claim claim(CreateProviderRequest request, const Context& ctx = user()) {
    Claim out;
    out.ctx = ctx;
    out.method = "CreateProvider";
    out.role = WorkspaceRole::kAdmin;
    out.scope = *scope_of(out.method, request);
    out.caller = caller_hash(*ctx->identity());
    out.key = admission_key(out.caller, out.method, out.scope.workspace, request.request_id());
    out.fingerprint = fingerprint(request, admissions_->key());
    out.key_id = admissions_->key()->id();
    return out;
  }
  absl::StatusOr<Admissions::Verdict> admit(Claim claim) {
    std::promise<absl::StatusOr<Admissions::Verdict>> got;
    admissions_->admit(std::move(claim), [&](absl::StatusOr<Admissions::Verdict> verdict) { got.set_value(std::move(verdict)); });
    return got.get_future().get();
  }
  absl::StatusOr<Admissions::Verdict> admit(const CreateProviderRequest& request) { return admit(claim(request)); }
  absl::Status complete(const Admissions::Verdict& verdict, const std::string& answer = "x") {
    std::promise<absl::Status> got;
    admissions_->complete(
        std::get<Admissions::Ticket>(verdict), [&](Admissions::Record& record) { record.set_answer(answer); },
        [&](const absl::Status& status) { got.set_value(status); });
    return got.get_future().get();
  }
  std::uint64_t rows(const std::string& subject = "anna") {
    std::uint64_t count = 0;
    EXPECT_TRUE(store_
                    ->read_and_wait([&](storage::Transaction& tx) {
                      const std::string owner = "_mutation/" + caller_hash(*user(subject)->identity());
                      count = *tx.count(storage::types::kMutationAdmission, owner);
                      return absl::OkStatus();
                    })
                    .ok());
    return count;
  }
  static bool is_ticket(const absl::StatusOr<Admissions::Verdict>& verdict) {
    return verdict.ok() && std::holds_alternative<Admissions::Ticket>(*verdict);
  }
  static bool is_replay(const absl::StatusOr<Admissions::Verdict>& verdict) { return verdict.ok() && !is_ticket(verdict); }

  std::atomic<std::int64_t> now_{1'700'000'000'000};
  std::unique_ptr<storage::Store> store_;
  std::shared_ptr<Admissions> admissions_;
};

TEST_F(AdmissionsTest, OnceAdmittedUncertainUntilConfirmedThenRepeated) {
  auto first = admit(provider_request());
  ASSERT_TRUE(is_ticket(first)) << first.status();
  EXPECT_EQ(reason(admit(provider_request()).status()), "REQUEST_OUTCOME_UNCERTAIN");
  ASSERT_TRUE(complete(*first).ok());
  const auto again = admit(provider_request());
  ASSERT_TRUE(is_replay(again));
  EXPECT_EQ(std::get<1>(*again)->answer(), "x");
  EXPECT_EQ(rows(), 1U);
}

TEST_F(AdmissionsTest, AnotherPayloadIsRefusedBeforeAndAfterTheOutcome) {
  auto changed = provider_request();
  changed.mutable_provider()->set_type("other");
  auto first = admit(provider_request());
  EXPECT_EQ(reason(admit(changed).status()), "REQUEST_ID_PAYLOAD_MISMATCH");
  ASSERT_TRUE(complete(*first).ok());
  EXPECT_EQ(reason(admit(changed).status()), "REQUEST_ID_PAYLOAD_MISMATCH");
}

TEST_F(AdmissionsTest, UnresolvedStaysSoForEverAndSuccessForADay) {
  ASSERT_TRUE(is_ticket(admit(provider_request())));
  const std::string second = "6f1d2c3b-0000-4000-8000-00000000bbbb";
  ASSERT_TRUE(complete(*admit(provider_request(second))).ok());
  now_ += kDay;
  EXPECT_TRUE(is_replay(admit(provider_request(second))));
  now_ += 1;  // the replay has not extended it
  EXPECT_TRUE(is_ticket(admit(provider_request(second))));
  now_ += 400 * kDay;
  EXPECT_EQ(reason(admit(provider_request()).status()), "REQUEST_OUTCOME_UNCERTAIN");
}

TEST_F(AdmissionsTest, AReplacedSigningKeyMakesItUnrepeatableNeverExecutable) {
  ASSERT_TRUE(complete(*admit(provider_request())).ok());
  AdmissionOptions options;
  options.key.emplace(Secret{"another private key"});
  make(std::move(options));
  EXPECT_EQ(reason(admit(provider_request()).status()), "REQUEST_REPLAY_UNAVAILABLE");
}

TEST_F(AdmissionsTest, ASuccessorOfTheWorkspaceIsAnotherWorkspace) {
  ASSERT_TRUE(complete(*admit(provider_request())).ok());
  ASSERT_TRUE(store_
                  ->write_and_wait([](storage::Transaction& tx) {
                    const auto row = *tx.get_by_name(storage::types::kWorkspace, "", "default");
                    return tx.erase(row->type, row->id).status();
                  })
                  .ok());
  EXPECT_EQ(admit(provider_request()).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(ensure_default_workspace(*store_).ok());
  EXPECT_EQ(reason(admit(provider_request()).status()), "REQUEST_REPLAY_UNAVAILABLE");
}

TEST_F(AdmissionsTest, WhoMayNotCallLeavesNothingAndLearnsNothing) {
  EXPECT_EQ(admit(claim(provider_request(), user("bert", true))).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(rows("bert"), 0U);
  ASSERT_TRUE(complete(*admit(provider_request())).ok());
  // anna's role is gone: no replay either.
  EXPECT_EQ(admit(claim(provider_request(), user("anna", true))).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(AdmissionsTest, TheThousandAndFirstOfACallerIsRefusedUntilOneHasExpired) {
  ASSERT_TRUE(complete(*admit(provider_request())).ok());
  for (std::uint64_t i = 1; i < kMaxAdmissionsOfCaller; ++i) {
    std::string id = std::to_string(100'000'000'000 + i);
    ASSERT_TRUE(is_ticket(admit(provider_request("6f1d2c3b-0000-4000-8000-" + id))));
  }
  EXPECT_EQ(rows(), kMaxAdmissionsOfCaller);
  const auto more = provider_request("6f1d2c3b-0000-4000-8000-00000000cccc");
  EXPECT_EQ(admit(more).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(is_ticket(admit(claim(more, user("bert")))));
  EXPECT_TRUE(is_replay(admit(provider_request())));  // what is there is found still
  now_ += kDay + 1;
  EXPECT_TRUE(is_ticket(admit(more)));
  EXPECT_EQ(admit(provider_request("6f1d2c3b-0000-4000-8000-00000000dddd")).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(AdmissionsTest, AnOutcomeOver64KiBIsNotRecorded) {
  const auto small = admit(provider_request());
  EXPECT_TRUE(complete(*small, std::string(kMaxOutcomeBytes - 1024, 'x')).ok());
  const auto large = admit(provider_request("6f1d2c3b-0000-4000-8000-00000000bbbb"));
  EXPECT_EQ(complete(*large, std::string(kMaxOutcomeBytes, 'x')).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(reason(admit(provider_request("6f1d2c3b-0000-4000-8000-00000000bbbb")).status()), "REQUEST_OUTCOME_UNCERTAIN");
}

TEST_F(AdmissionsTest, SixtyFourRunAndComeBack) {
  std::vector<Admissions::Permit> out;
  for (std::size_t i = 0; i < kMaxDetachedWork; ++i) {
    out.push_back(admissions_->permit());
    ASSERT_TRUE(out.back());
  }
  EXPECT_FALSE(admissions_->permit());
  out.pop_back();
  EXPECT_TRUE(admissions_->permit());
}

TEST_F(AdmissionsTest, NothingIsAdmittedOnceTheStoreGoes) {
  auto first = admit(provider_request());
  admissions_->close();
  EXPECT_EQ(admit(provider_request()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(complete(*first).code(), absl::StatusCode::kUnavailable);
}

// ---- the call

/// The wire's side of a call, played by the test.
class FakeCall final : public internal::Call {
 public:
  explicit FakeCall(const google::protobuf::Message& request) : request_{request.SerializeAsString()} {}
  void read(std::shared_ptr<google::protobuf::MessageLite> into, std::function<void(bool)> then) override {
    then(into->ParseFromString(request_));
  }
  void write(const google::protobuf::MessageLite&, std::function<void(bool)> then) override {
    if (then) then(true);
  }
  void finish(absl::Status status, const google::protobuf::MessageLite* last) override {
    const std::lock_guard lock{mutex_};
    if (ended_) return;
    ended_ = true;
    if (last != nullptr) answer_ = last->SerializeAsString();
    end_.set_value(std::move(status));
  }
  void on_done(std::function<void()> callback) override { done_.push_back(std::move(callback)); }
  std::size_t queued_bytes() const override { return 0; }
  bool over() const override { return cancelled_; }
  void mark_replayed() override { replayed = true; }

  void cancel() {
    cancelled_ = true;
    for (const auto& callback : std::exchange(done_, {})) callback();
  }
  absl::Status end() { return end_.get_future().get(); }
  template <class Answer>
  Answer answer() {
    Answer out;
    EXPECT_TRUE(out.ParseFromString(answer_));
    return out;
  }
  std::atomic<bool> replayed{false};

 private:
  std::string request_;
  std::mutex mutex_;
  bool ended_ = false;
  std::string answer_;
  std::promise<absl::Status> end_;
  std::atomic<bool> cancelled_{false};
  std::vector<std::function<void()>> done_;
};

class AdmittedCallTest : public AdmissionsTest {
 protected:
  AdmittedCallTest() {
    router_.unary<CreateProviderRequest, ProviderResponse>(
        "CreateProvider", [this](const Context&, const CreateProviderRequest&, const Reply<ProviderResponse>& reply) {
          ++runs_;
          if (hold_) {
            held_.push_back(reply);
            return;
          }
          fail_.ok() ? reply.ok(response()) : reply.fail(fail_);
        });
    router_.unary<GetProviderRequest, ProviderResponse>(
        "GetProvider", [this](const Context& ctx, const GetProviderRequest& request, const Reply<ProviderResponse>& reply) {
          EXPECT_EQ(ctx->method, "GetProvider");
          EXPECT_EQ(request.name(), "github");
          there_ ? reply.ok(response()) : reply.fail(absl::NotFoundError("provider not found"));
        });
    router_.server_stream<ExecSandboxRequest, ExecSandboxEvent>(
        "ExecSandbox", [this](const Context&, const ExecSandboxRequest&, const Stream<Nothing, ExecSandboxEvent>& stream) {
          ++runs_;
          execs_.push_back(stream);
        });
  }
  ProviderResponse response() const {
    ProviderResponse out;
    out.mutable_provider()->mutable_metadata()->set_id(id_);
    out.mutable_provider()->mutable_metadata()->set_name("github");
    out.mutable_provider()->mutable_metadata()->set_workspace("default");
    out.mutable_provider()->mutable_metadata()->set_resource_version(version_);
    return out;
  }
  std::shared_ptr<FakeCall> call(const google::protobuf::Message& request, const std::string& method = "CreateProvider",
                                 const Principal& principal = User{{"anna", "", {}, {}, Identity::Source::kMtls}}) {
    auto ctx = std::make_shared<CallContext>();
    ctx->method = method;
    ctx->principal = principal;
    auto fake = std::make_shared<FakeCall>(request);
    (*router_.find(method))(ctx, admitted(fake, ctx, &rule_, admissions_, &router_));
    return fake;
  }
  /// Writes before it are done: the store works in order.
  void settle() {
    EXPECT_TRUE(store_->write_and_wait([](storage::Transaction&) { return absl::OkStatus(); }).ok());
  }
  static ExecSandboxRequest exec_request() {
    ExecSandboxRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    request.set_sandbox("box");
    request.add_command("true");
    request.set_request_id(kId);
    return request;
  }

  Router router_;
  MethodRule rule_{AuthMode::kBearer, WorkspaceRole::kUser, false, ""};
  std::atomic<int> runs_{0};
  std::atomic<bool> hold_{false};
  std::atomic<bool> there_{true};
  std::string id_ = "p-1";
  std::uint64_t version_ = 1;
  absl::Status fail_;
  std::vector<Reply<ProviderResponse>> held_;
  std::vector<Stream<Nothing, ExecSandboxEvent>> execs_;
};

TEST_F(AdmittedCallTest, TheSecondCallGetsTheFirstAnswerAndRunsNothing) {
  ASSERT_TRUE(call(provider_request())->end().ok());
  auto again = call(provider_request("6F1D2C3B-0000-4000-8000-00000000AAAA"));
  ASSERT_TRUE(again->end().ok());
  EXPECT_TRUE(again->replayed);
  EXPECT_EQ(again->answer<ProviderResponse>().SerializeAsString(), response().SerializeAsString());
  EXPECT_EQ(runs_, 1);
}

TEST_F(AdmittedCallTest, WithoutAnIdEveryCallRuns) {
  ASSERT_TRUE(call(provider_request(""))->end().ok());
  auto again = call(provider_request(""));
  ASSERT_TRUE(again->end().ok());
  EXPECT_FALSE(again->replayed);
  EXPECT_EQ(runs_, 2);
  EXPECT_EQ(rows(), 0U);
}

TEST_F(AdmittedCallTest, ABadIdRunsNothing) {
  for (const char* id : {"00000000-0000-0000-0000-000000000000", "6f1d2c3b-0000-4000-8000-00000000aaa", "x",
                         "6f1d2c3b00004000800000000000aaaa", "6f1d2c3b-0000-4000-8000-00000000aaag"}) {
    const auto status = call(provider_request(id))->end();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << id;
    EXPECT_THAT(std::string{status.message()}, HasSubstr("must be a nonzero hyphenated UUID (36 characters)"));
  }
  EXPECT_EQ(runs_, 0);
}

TEST_F(AdmittedCallTest, AFailureIsGivenOnceAndThenUncertain) {
  fail_ = absl::AlreadyExistsError("provider already exists");
  EXPECT_EQ(call(provider_request())->end(), fail_);
  EXPECT_EQ(reason(call(provider_request())->end()), "REQUEST_OUTCOME_UNCERTAIN");
  EXPECT_EQ(runs_, 1);
}

TEST_F(AdmittedCallTest, ACallerThatGoesAwayStopsNothing) {
  hold_ = true;
  auto first = call(provider_request());
  settle();
  ASSERT_EQ(held_.size(), 1U);
  std::atomic<bool> done{false};
  held_[0].on_done([&] { done = true; });
  first->cancel();
  EXPECT_FALSE(held_[0].over());
  EXPECT_FALSE(done);
  EXPECT_EQ(reason(call(provider_request())->end()), "REQUEST_OUTCOME_UNCERTAIN");
  held_[0].ok(response());
  settle();
  EXPECT_TRUE(done);
  EXPECT_TRUE(held_[0].over());
  held_.clear();
  auto again = call(provider_request());
  EXPECT_TRUE(again->end().ok());
  EXPECT_TRUE(again->replayed);
  EXPECT_EQ(runs_, 1);
}

TEST_F(AdmittedCallTest, TheSixtyFifthAtTheSameTimeIsRefusedAndNothingStarts) {
  hold_ = true;
  std::vector<std::shared_ptr<FakeCall>> running;
  for (std::size_t i = 0; i < kMaxDetachedWork; ++i)
    running.push_back(call(provider_request("6f1d2c3b-0000-4000-8000-" + std::to_string(100'000'000'000 + i))));
  const auto status = call(provider_request())->end();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  settle();
  EXPECT_EQ(runs_, static_cast<int>(kMaxDetachedWork));
  held_[0].ok(response());
  ASSERT_TRUE(running[0]->end().ok());
  call(provider_request());
  settle();
  EXPECT_EQ(runs_, static_cast<int>(kMaxDetachedWork) + 1);
  for (const auto& reply : held_) reply.ok(response());
  settle();
}

TEST_F(AdmittedCallTest, WhatWasMadeMustBeThereUnchanged) {
  ASSERT_TRUE(call(provider_request())->end().ok());
  version_ = 2;
  EXPECT_EQ(reason(call(provider_request())->end()), "REQUEST_REPLAY_UNAVAILABLE");
  version_ = 1;
  id_ = "p-2";  // a successor of the same name
  EXPECT_EQ(reason(call(provider_request())->end()), "REQUEST_REPLAY_UNAVAILABLE");
  there_ = false;
  EXPECT_EQ(reason(call(provider_request())->end()), "REQUEST_REPLAY_UNAVAILABLE");
  EXPECT_EQ(runs_, 1);
}

TEST_F(AdmittedCallTest, WithoutAKeyNothingStarts) {
  AdmissionOptions options;
  options.store = store_.get();
  admissions_ = std::make_shared<Admissions>(std::move(options));
  EXPECT_EQ(reason(call(provider_request())->end()), "REQUEST_REPLAY_UNAVAILABLE");
  EXPECT_EQ(runs_, 0);
}

TEST_F(AdmittedCallTest, ASupervisorsIdIsCheckedAndNotAdmitted) {
  const SandboxCaller supervisor{SandboxId{"s"}, false, GenerationId{"g"}, 1, "t", "", ""};
  EXPECT_TRUE(call(provider_request(), "CreateProvider", supervisor)->end().ok());
  EXPECT_TRUE(call(provider_request(), "CreateProvider", supervisor)->end().ok());
  EXPECT_EQ(runs_, 2);
  EXPECT_EQ(call(provider_request("x"), "CreateProvider", supervisor)->end().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(AdmittedCallTest, AnExecRunsOnceAndItsOutputIsNotKept) {
  auto first = call(exec_request(), "ExecSandbox");
  settle();
  ASSERT_EQ(execs_.size(), 1U);
  EXPECT_EQ(reason(call(exec_request(), "ExecSandbox")->end()), "REQUEST_OUTCOME_UNCERTAIN");
  auto changed = exec_request();
  changed.add_command("more");
  EXPECT_EQ(reason(call(changed, "ExecSandbox")->end()), "REQUEST_ID_PAYLOAD_MISMATCH");
  execs_[0].finish(absl::OkStatus());
  ASSERT_TRUE(first->end().ok());
  EXPECT_EQ(reason(call(exec_request(), "ExecSandbox")->end()), "REQUEST_STREAM_UNAVAILABLE");
  EXPECT_EQ(runs_, 1);
}

TEST_F(AdmittedCallTest, AnExecIsCancelledByItsCallerAndCountsAsEnded) {
  auto first = call(exec_request(), "ExecSandbox");
  settle();
  std::atomic<bool> done{false};
  execs_[0].on_done([&] { done = true; });
  first->cancel();
  EXPECT_TRUE(done);
  execs_.clear();  // dropped without an answer
  EXPECT_FALSE(first->end().ok());
  EXPECT_EQ(reason(call(exec_request(), "ExecSandbox")->end()), "REQUEST_STREAM_UNAVAILABLE");
}

TEST_F(AdmittedCallTest, AnExecThatBrokeOrWasTimedOutStaysUncertain) {
  auto broken = call(exec_request(), "ExecSandbox");
  settle();
  execs_[0].finish(absl::UnavailableError("exec relay closed"));
  EXPECT_FALSE(broken->end().ok());
  EXPECT_EQ(reason(call(exec_request(), "ExecSandbox")->end()), "REQUEST_OUTCOME_UNCERTAIN");
  auto other = exec_request();
  other.set_request_id("6f1d2c3b-0000-4000-8000-00000000bbbb");
  auto timed_out = call(other, "ExecSandbox");
  settle();
  execs_[1].leave_unresolved();
  execs_[1].finish(absl::OkStatus());
  EXPECT_TRUE(timed_out->end().ok());
  EXPECT_EQ(reason(call(other, "ExecSandbox")->end()), "REQUEST_OUTCOME_UNCERTAIN");
}

}  // namespace
}  // namespace openshell::api
