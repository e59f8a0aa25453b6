#include "policy/rego/machine.hpp"

#include "policy/text.hpp"

#include <algorithm>

namespace openshell::policy::rego {

using openshell::policy::text::cat;

namespace {
constexpr std::size_t kChunkValues = 4096;
}

Machine::Machine(const Program& program, Value data, Value input, QueryContext& context)
    : program_(program), context_(context), first_(std::make_unique<World>()), world_(first_.get()) {
  first_->input = std::move(input);
  first_->data = std::move(data);
  first_->documents.resize(program.groups.size());
}

Machine::~Machine() = default;

Machine::Frame::Frame(Machine& machine, std::size_t count) : machine_(machine), count_(count) {
  auto& chunks = machine.chunks_;
  if (chunks.empty() || chunks[machine.chunk_].used + count > chunks[machine.chunk_].size) {
    const std::size_t next = chunks.empty() ? 0 : machine.chunk_ + 1;
    if (next == chunks.size()) chunks.emplace_back();
    auto& chunk = chunks[next];
    if (chunk.size < count) {
      chunk.size = std::max(kChunkValues, count);
      chunk.values = std::make_unique<Value[]>(chunk.size);
    }
    chunk.used = 0;
    machine.chunk_ = next;
  }
  chunk_ = machine.chunk_;
  used_ = chunks[chunk_].used;
  slots_of(chunks[chunk_]);
}

void Machine::Frame::slots_of(Chunk& chunk) {
  slots = chunk.values.get() + used_;
  chunk.used += count_;
}

Machine::Frame::~Frame() {
  for (std::size_t i = 0; i < count_; ++i) slots[i] = Value();
  machine_.chunks_[chunk_].used = used_;
  machine_.chunk_ = used_ == 0 && chunk_ > 0 ? chunk_ - 1 : chunk_;
}

Machine::Flow Machine::fail(std::string_view code, Position at, std::string message) {
  if (!failed_) error_ = Error{std::string(code), std::move(message), file_ != nullptr ? *file_ : "", at};
  failed_ = true;
  return Flow::stop;
}

Machine::Flow Machine::fail(Position at, const absl::Status& status) {
  const std::string message(status.message().data(), status.message().size());
  if (status.code() == absl::StatusCode::kResourceExhausted) return fail(code::kEvalLimit, at, message);
  if (status.code() == absl::StatusCode::kInvalidArgument) return fail(code::kEvalType, at, message);
  return fail(code::kBuiltin, at, message);
}

bool Machine::charge(Position at) {
  if (const auto status = context_.charge(1); !status.ok()) [[unlikely]] {
    fail(at, status);
    return false;
  }
  return true;
}

bool Machine::fits(std::size_t elements, Position at) {
  if (elements <= context_.limits().elements) return true;
  fail(at, context_.room_for(elements));
  return false;
}

std::variant<std::vector<Answer>, Error> Machine::run(const Query& query) {
  std::vector<Answer> answers;
  Frame frame(*this, query.slots);
  steps(query.plan, 0, frame.slots, [&] {
    Answer answer;
    for (const Slot slot : query.expressions) answer.expressions.push_back(slot == Query::kTrue ? Value::boolean(true) : frame.slots[slot]);
    for (const auto& [name, slot] : query.bindings) {
      if (frame.slots[slot].is_defined()) answer.bindings.emplace_back(name, frame.slots[slot]);
    }
    answers.push_back(std::move(answer));
    return fits(answers.size(), {}) ? Flow::on : Flow::stop;
  });
  if (failed_) return *error_;
  return answers;
}

}  // namespace openshell::policy::rego
