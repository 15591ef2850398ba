"""Fields of published JSON that only some artifacts have; the bytes of all others stay as they were."""

from typing import Any, ClassVar

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer


class WithOptional(BaseModel):
    """A model whose fields in `optional` are left out of the JSON if they have their default values."""

    optional: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        written: dict[str, Any] = handler(self)
        return {
            name: value
            for name, value in written.items()
            if name not in self.optional
            or getattr(self, name) != fields[name].get_default(call_default_factory=True)
        }
