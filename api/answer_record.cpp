#include "api/answer_record.hpp"

#include <google/protobuf/message.h>

#include <array>
#include <atomic>

#include "admissions.pb.h"
#include "datamodel.pb.h"
#include "observability/text.hpp"

namespace openshell::api {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using openshell::internal::admissions::v1::AnsweredObject;

/// How an object of an answer is read again: a method that takes a name and, for what lies in a workspace, workspace_scope.
struct ReadBack {
  std::string_view type;
  std::string_view method;
  bool any_version;  ///< a sandbox moves on by itself; anything else has to be what the mutation made
};
constexpr std::array kReadBack{
    ReadBack{"openshell.v1.Sandbox", "GetSandbox", true},
    ReadBack{"openshell.datamodel.v1.Provider", "GetProvider", false},
    ReadBack{"openshell.datamodel.v1.Workspace", "GetWorkspace", false},
};
/// Parts of answers that hold ids and states only.
constexpr std::array<std::string_view, 1> kKept{"openshell.v1.ProviderMutationReceipt"};

const ReadBack* read_back(const Descriptor& type) {
  for (const auto& one : kReadBack) {
    if (one.type == type.full_name()) return &one;
  }
  return nullptr;
}

/// Objects say who they are in `metadata`.
const datamodel::v1::ObjectMeta* metadata_of(const Message& object) {
  const auto* field = object.GetDescriptor()->FindFieldByName("metadata");
  const bool fits = field != nullptr && field->message_type() == datamodel::v1::ObjectMeta::descriptor();
  return fits ? static_cast<const datamodel::v1::ObjectMeta*>(&object.GetReflection()->GetMessage(object, field)) : nullptr;
}

/// A call from within: one request in, one answer out.
class InnerCall final : public internal::Call {
 public:
  using Then = std::function<void(absl::Status, const google::protobuf::MessageLite*)>;
  InnerCall(std::string request, Then then) : request_{std::move(request)}, then_{std::move(then)} {}
  void read(std::shared_ptr<google::protobuf::MessageLite> into, std::function<void(bool)> then) override {
    then(into->ParseFromString(request_));
  }
  void write(const google::protobuf::MessageLite&, std::function<void(bool)> then) override {
    if (then) then(false);
  }
  void finish(absl::Status status, const google::protobuf::MessageLite* last) override {
    if (!over_.exchange(true)) then_(std::move(status), last);
  }
  void on_done(std::function<void()>) override {}  // nobody can cancel it
  std::size_t queued_bytes() const override { return 0; }
  bool over() const override { return over_; }

 private:
  std::string request_;
  Then then_;
  std::atomic<bool> over_{false};
};

struct Rebuilding {
  std::shared_ptr<Message> answer;
  AnsweredObject object;
  std::function<void(absl::StatusOr<std::shared_ptr<Message>>)> then;
};

std::string lookup_request(const Message& prototype, const AnsweredObject& object) {
  const std::unique_ptr<Message> request{prototype.New()};
  datamodel::v1::WorkspaceSelector scope;
  scope.set_workspace(object.workspace());
  const auto& type = *request->GetDescriptor();
  const auto* reflection = request->GetReflection();
  const auto* selector = type.FindFieldByName("workspace_scope");
  if (selector != nullptr) reflection->MutableMessage(request.get(), selector)->CopyFrom(scope);
  reflection->SetString(request.get(), type.FindFieldByName("name"), object.name());
  return request->SerializeAsString();
}

absl::Status take_object(const Message& found, const Rebuilding& to) {
  const auto* from = found.GetDescriptor()->FindFieldByName(to.object.field());
  const auto* into = to.answer->GetDescriptor()->FindFieldByName(to.object.field());
  if (from == nullptr || into == nullptr || from->message_type() != into->message_type())
    return replay_unavailable("it can not be read again");
  const Message& object = found.GetReflection()->GetMessage(found, from);
  const auto* metadata = metadata_of(object);
  const bool same = metadata != nullptr && metadata->id() == to.object.id();
  if (!same) return replay_unavailable("what it made is gone");
  if (!read_back(*object.GetDescriptor())->any_version && metadata->resource_version() != to.object.resource_version())
    return replay_unavailable("what it made was changed since");
  to.answer->GetReflection()->MutableMessage(to.answer.get(), into)->CopyFrom(object);
  return absl::OkStatus();
}

}  // namespace

void record_answer(const Message& answer, Admissions::Record& record) {
  const std::unique_ptr<Message> kept{answer.New()};
  kept->CopyFrom(answer);
  const auto* reflection = kept->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(answer, &fields);
  for (const auto* field : fields) {
    const auto* type = field->message_type();
    if (type == nullptr || field->is_map()) continue;
    if (std::find(kKept.begin(), kKept.end(), type->full_name()) != kKept.end()) continue;
    const auto* metadata = field->is_repeated() ? nullptr : metadata_of(reflection->GetMessage(answer, field));
    reflection->ClearField(kept.get(), field);
    if (metadata == nullptr || read_back(*type) == nullptr) {
      record.set_unrepeatable(true);
      continue;
    }
    auto& object = *record.add_objects();
    object.set_field(field->name());
    object.set_id(metadata->id());
    object.set_name(metadata->name());
    object.set_workspace(metadata->workspace());
    object.set_resource_version(metadata->resource_version());
  }
  record.set_answer(kept->SerializeAsString());
}

void rebuild_answer(const CoveredMethod& method, const Admissions::Record& record, const Context& ctx, const Router& router,
                    std::function<void(absl::StatusOr<std::shared_ptr<Message>>)> then) {
  auto* factory = google::protobuf::MessageFactory::generated_factory();
  auto to = std::make_shared<Rebuilding>();
  to->answer.reset(factory->GetPrototype(method.answer)->New());
  to->then = std::move(then);
  if (!to->answer->ParseFromString(record.answer())) return to->then(absl::InternalError("the recorded outcome can not be read"));
  if (record.objects().empty()) return to->then(to->answer);
  if (record.objects_size() > 1) return to->then(replay_unavailable("its answer is not kept"));
  to->object = record.objects(0);
  const auto* field = method.answer->FindFieldByName(to->object.field());
  const auto* how = field == nullptr || field->message_type() == nullptr ? nullptr : read_back(*field->message_type());
  const auto* start = how == nullptr ? nullptr : router.find(how->method);
  if (start == nullptr) return to->then(replay_unavailable("it can not be read again"));
  auto inner = std::make_shared<CallContext>(*ctx);
  inner->method = how->method;
  const auto* service = method.answer->file()->FindServiceByName("OpenShell");
  const auto* looked_up = service->FindMethodByName(std::string{how->method});
  auto call = std::make_shared<InnerCall>(lookup_request(*factory->GetPrototype(looked_up->input_type()), to->object),
                                          [to](const absl::Status& status, const google::protobuf::MessageLite* last) {
                                            if (absl::IsNotFound(status)) return to->then(replay_unavailable("what it made is gone"));
                                            if (!status.ok()) return to->then(status);
                                            const auto* found = dynamic_cast<const Message*>(last);
                                            if (found == nullptr) return to->then(replay_unavailable("it can not be read again"));
                                            const auto taken = take_object(*found, *to);
                                            taken.ok() ? to->then(to->answer) : to->then(taken);
                                          });
  (*start)(std::move(inner), std::move(call));
}

}  // namespace openshell::api
